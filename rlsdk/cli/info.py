"""`rlsdk info ALGO`"""

from __future__ import annotations

import shutil
from textwrap import fill
from typing import Annotated, Any

import typer

from rlsdk.registry import capabilities, find, load, presets
from rlsdk.settings import FieldDoc, describe
from rlsdk.settings.render import toml_value


def show_info(algorithm: Annotated[str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.")]) -> None:
    """Show an algorithm: spaces, capabilities, paper, and every hyper-parameter with type, default and meaning."""
    spec, plugin = load(algorithm), find(algorithm)
    manifest = plugin.manifest
    if manifest is not None:
        typer.echo(f"{manifest.title} ({plugin.qualified_id} {plugin.version})\n{manifest.summary}\n")
        rows = {
            "paper": manifest.paper,
            "family": manifest.family,
            "actions": ", ".join(manifest.actions),
            "observations": ", ".join(manifest.observations),
            "policies": ", ".join(manifest.policies),
            "traits": ", ".join(manifest.traits),
            "presets": ", ".join(known.env for known in presets(algorithm)),
            "measured": _measured(capabilities(plugin)),
        }
        for name, value in rows.items():
            typer.echo(f"{name + ':':<14}{value}")
    typer.echo("\nhyper-parameters:")
    for doc in describe(spec.config_type):
        _show(doc, indent=2)


def _measured(found: dict[str, Any] | None) -> str:
    """What small agents of it were seen to do."""
    if found is None:
        return "not yet; rlsdk check ID --capabilities"
    words = {name: value for name, value in found.items() if isinstance(value, bool)}
    lists = {name: value for name, value in found.items() if isinstance(value, list)}
    able = [name for name, value in words.items() if value]
    return "; ".join(
        [*(f"{name} {', '.join(value)}" for name, value in lists.items()), f"masks {found.get('masks')}", *able]
    )


def _show(doc: FieldDoc, indent: int) -> None:
    width = min(shutil.get_terminal_size().columns, 110)
    default = "required" if doc.required else f"default {toml_value(doc.default)}"
    margin = " " * indent
    if doc.children:
        typer.echo(f"{margin}{doc.name}: a table")
    else:
        typer.echo(f"{margin}{doc.name}: {doc.type}, {default}")
    text = doc.help + (f" [{doc.unit}]" if doc.unit else "") + (f" ({doc.source})" if doc.source else "")
    typer.echo(fill(text, width, initial_indent=margin + "    ", subsequent_indent=margin + "    "))
    for child in doc.children:
        _show(child, indent + 4)
