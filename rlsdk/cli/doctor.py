"""The command `rlsdk doctor`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from rlsdk.errors import one_line
from rlsdk.registry import Plugin, plugins
from rlsdk.registry.discovery import SWITCH
from rlsdk.registry.manifest import package_folder
from rlsdk.runtime.pip_commands import pip_install

if TYPE_CHECKING:
    from rlsdk.registry.trial import Trial


def diagnose(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Check the installation: print versions, and load every plugin in a separate process.

    Exit code 1 if there is a problem.
    """
    from rlsdk.registry.trial import all_tried

    versions, found = {name: _version(name) for name in PACKAGES}, plugins()
    if not as_json:
        _print_system(versions)
    trials = list(zip(found, all_tried(found), strict=True))
    if as_json:
        system = {"versions": versions, "cores": os.cpu_count(), "compiled_kernels": has_compiled_kernels()}
        typer.echo(json.dumps({**system, "plugins": _records(trials)}, indent=1))
    else:
        for plugin, trial in trials:
            _show(plugin, trial)
    if not trials:
        typer.echo(f"no plugin is installed; try: {pip_install('rlsdk-tqc')}", err=as_json)
    if any(trial.problem is not None or trial.effects for _, trial in trials):
        raise typer.Exit(1)


PACKAGES = ("rlsdk", "torch", "gymnasium", "numpy", "safetensors")


def _version(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def has_compiled_kernels() -> bool:
    """Whether an installed package of kernels has compiled code."""
    folders = (package_folder(plugin.module) for plugin in plugins() if plugin.manifest and plugin.manifest.kernels)
    return any(any((folder / "compiled").glob("kernels-*.so")) for folder in folders)


def _print_system(versions: dict[str, str | None]) -> None:
    for package, version in versions.items():
        typer.echo(f"{package:<14}{version or 'NOT INSTALLED'}")
    typer.echo(f"{'cores':<14}{os.cpu_count()}")
    compiled = (
        "compiled"
        if has_compiled_kernels()
        else "not compiled: rlsdk was installed without a C compiler, so small networks train more slowly"
    )
    typer.echo(f"{'kernels':<14}{compiled}")
    if os.environ.get(SWITCH):
        typer.echo(f"{SWITCH}={os.environ[SWITCH]} hides some plugins")


def _records(trials: list[tuple[Plugin, Trial]]) -> list[dict[str, object]]:
    return [
        {"id": plugin.qualified_id, "version": plugin.version, "problem": trial.problem, "effects": list(trial.effects)}
        for plugin, trial in trials
    ]


def _show(plugin: Plugin, trial: Trial) -> None:
    """Print the result of loading one plugin."""
    label = one_line(f"plugin {plugin.qualified_id} {plugin.version}:")
    if trial.problem is not None:
        typer.echo(f"{label} BROKEN: {one_line(trial.problem)}")
    else:
        typer.echo(f"{label} usable" + "".join(f"\n    WARNING: {one_line(effect)}" for effect in trial.effects))
