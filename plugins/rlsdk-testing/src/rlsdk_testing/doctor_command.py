"""The command `rlsdk doctor`, which checks the installation and loads every plugin."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.errors import one_line
from rlsdk.registry import Plugin, plugins
from rlsdk.runtime import pip_install
from rlsdk_testing.plugin_trial import Trial, all_tried

SWITCH = "RLSDK_PLUGINS"
"""The environment variable that hides plugins."""


def diagnose(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Check the installation: print versions, and load every plugin in a separate process.

    Exit code 1 if there is a problem.
    """
    versions, found = {name: _version(name) for name in PACKAGES}, plugins()
    # First: loading the plugins may take long.
    if not as_json:
        _print_system(versions)
    trials = list(zip(found, all_tried(found), strict=True))
    if as_json:
        system = {"versions": versions, "cores": os.cpu_count(), "compiled_kernels": _has_compiled_kernels()}
        typer.echo(json.dumps({**system, "plugins": _records(trials)}, indent=1))
    else:
        for plugin, trial in trials:
            _show_diagnosis(plugin, trial)
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


def _has_compiled_kernels() -> bool:
    """Whether an installed package of kernels has compiled code."""
    names = {plugin.module.partition(".")[0] for plugin in plugins() if plugin.manifest and plugin.manifest.kernels}
    specs = (find_spec(name) for name in names)  # of packages at the top, which are not imported for it
    folders = (Path(folder) for spec in specs if spec is not None for folder in spec.submodule_search_locations or ())
    return any(any((folder / "compiled").glob("kernels-*.so")) for folder in folders)


def _print_system(versions: dict[str, str | None]) -> None:
    for package, version in versions.items():
        typer.echo(f"{package:<14}{version or 'NOT INSTALLED'}")
    typer.echo(f"{'cores':<14}{os.cpu_count()}")
    compiled = (
        "compiled"
        if _has_compiled_kernels()
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


def _show_diagnosis(plugin: Plugin, trial: Trial) -> None:
    """Print the result of loading one plugin."""
    label = one_line(f"plugin {plugin.qualified_id} {plugin.version}:")
    if trial.problem is not None:
        typer.echo(f"{label} BROKEN: {one_line(trial.problem)}")
    else:
        typer.echo(f"{label} usable" + "".join(f"\n    WARNING: {one_line(effect)}" for effect in trial.effects))
