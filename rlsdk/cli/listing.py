"""The command `rlsdk list`."""

from __future__ import annotations

import json
from typing import Annotated

import attrs
import typer

from rlsdk.errors import one_line
from rlsdk.registry import Plugin, algorithms
from rlsdk.runtime.pip_commands import pip_install


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
