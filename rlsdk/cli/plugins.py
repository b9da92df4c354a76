"""The command `rlsdk info ALGO`."""

from __future__ import annotations

import json
import shutil
from textwrap import fill
from typing import Annotated, Any

import attrs
import typer

from rlsdk.cli.completions import Algorithm
from rlsdk.errors import one_line
from rlsdk.registry import capabilities, find, preset_names


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
