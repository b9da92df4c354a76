"""The commands `rlsdk list`, `rlsdk info` and `rlsdk doctor`, which describe what is installed."""

from __future__ import annotations

import json
import os
import shutil
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from rlsdk.cli.completions import Algorithm
from rlsdk.errors import one_line
from rlsdk.registry import Plugin, algorithms, capabilities, find, plugins, preset_names
from rlsdk.registry.discovery import SWITCH
from rlsdk.registry.manifest import package_folder
from rlsdk.runtime.packages import pip_install

if TYPE_CHECKING:
    from rlsdk.registry.trial import Trial


def show_info(
    algorithm: Algorithm,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show an algorithm: spaces, capabilities, paper, and every hyper-parameter with type, default and meaning."""
    from rlsdk.registry.trial import require_loads

    plugin = find(algorithm)
    trial, manifest = require_loads(plugin), plugin.manifest
    if as_json:
        table = {} if manifest is None else attrs.asdict(manifest)
        more = {"version": plugin.version, "presets": preset_names(plugin.qualified_id), "settings": trial.settings}
        typer.echo(json.dumps({**table, **more, "measured": capabilities(plugin)}, indent=1, default=str))
        return
    if manifest is not None:
        typer.echo(one_line(f"{manifest.title} ({plugin.qualified_id} {plugin.version})"))
        typer.echo(f"{one_line(manifest.summary)}\n")
        rows = {
            "paper": manifest.paper,
            "family": manifest.family,
            "actions": ", ".join(manifest.actions),
            "observations": ", ".join(manifest.observations),
            "policies": ", ".join(manifest.policies),
            "traits": ", ".join(manifest.traits),
            "presets": ", ".join(preset_names(plugin.qualified_id)),
            "measured": _measured(capabilities(plugin)),
        }
        for name, value in rows.items():
            typer.echo(f"{name + ':':<14}{one_line(value)}")
    typer.echo("\nhyper-parameters:")
    for doc in trial.settings:
        _show(doc, indent=2)
    for effect in trial.effects:
        typer.echo(f"warning: {one_line(effect)}", err=True)


def _measured(found: dict[str, Any] | None) -> str:
    """Return one line with the measured capabilities of an algorithm, or the command that measures them."""
    if found is None:
        return "not yet; rlsdk check ID --capabilities"
    lists = [f"{name} {', '.join(value)}" for name, value in found.items() if isinstance(value, list)]
    texts = [f"{name} {value}" for name, value in found.items() if isinstance(value, str)]
    return "; ".join([*lists, *texts, *(name for name, value in found.items() if value is True)])


def _show(doc: dict[str, Any], indent: int) -> None:
    width = min(shutil.get_terminal_size().columns, 110)
    margin = " " * indent
    typer.echo(f"{margin}{doc['name']}: " + ("a table" if doc["children"] else f"{doc['type']}, {doc['default']}"))
    unit, source = (f" [{doc['unit']}]" if doc["unit"] else ""), (f" ({doc['source']})" if doc["source"] else "")
    text = doc["help"] + unit + source
    typer.echo(fill(text, width, initial_indent=margin + "    ", subsequent_indent=margin + "    "))
    for child in doc["children"]:
        _show(child, indent + 4)


def list_algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the installed algorithms. Imports neither torch nor any plugin."""
    found = algorithms()
    if as_json:
        typer.echo(json.dumps([_record(plugin) for plugin in found], indent=1))
        return
    if not found:
        typer.echo(f"no algorithm is installed; try: {pip_install('rlsdk-tqc')}")
        return
    rows: list[tuple[str, ...]] = [("id", "version", "family", "actions", "summary")]
    for plugin in found:
        manifest = plugin.manifest
        family, actions = (manifest.family or "", ", ".join(manifest.actions)) if manifest else ("?", "?")
        summary = f"CANNOT BE USED: {plugin.problem}" if plugin.problem else manifest.summary if manifest else ""
        rows.append(tuple(map(one_line, (plugin.id, plugin.version, family, actions, summary))))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)) + f"  {row[4]}" for row in rows
    )
    typer.echo("\n".join(lines))  # at once: `echo` flushes, and there may be thousands of rows


def _record(plugin: Plugin) -> dict[str, object]:
    manifest = plugin.manifest
    context: dict[str, object] = {}
    if manifest is not None:
        context = dict(attrs.asdict(manifest))
    known = {"id": plugin.id, "distribution": plugin.distribution, "version": plugin.version}
    return {**context, **known, "problem": plugin.problem}


def diagnose(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Check the installation: print versions, and load every plugin in a separate process.

    Exit code 1 if there is a problem.
    """
    from rlsdk.registry.trial import all_tried

    versions, found = {name: _version(name) for name in PACKAGES}, plugins()
    # First: loading the plugins may take long.
    if not as_json:
        _print_system(versions)
    trials = list(zip(found, all_tried(found), strict=True))
    if as_json:
        system = {"versions": versions, "cores": os.cpu_count(), "compiled_kernels": has_compiled_kernels()}
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


def _show_diagnosis(plugin: Plugin, trial: Trial) -> None:
    """Print the result of loading one plugin."""
    label = one_line(f"plugin {plugin.qualified_id} {plugin.version}:")
    if trial.problem is not None:
        typer.echo(f"{label} BROKEN: {one_line(trial.problem)}")
    else:
        typer.echo(f"{label} usable" + "".join(f"\n    WARNING: {one_line(effect)}" for effect in trial.effects))
