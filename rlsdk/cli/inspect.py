"""The command `rlsdk inspect FILE`."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.errors import one_line
from rlsdk.settings import Dataset


def inspect_file(
    file: Annotated[Path, typer.Argument(help="Agent file, run directory (uses its best agent), or data set.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest as JSON.")] = False,
) -> None:
    """Show the contents of an agent file or of a data set. Runs no code from it and needs no plugin."""
    if (data := Dataset.file_at(file)) is not None:
        _inspect_data(data, as_json=as_json)
        return
    from rlsdk.agent import inspect_file as manifest_of
    from rlsdk.experiments.agent_path import find_agent
    from rlsdk.storage.archive import shapes_in, table_in

    document = manifest_of(find_agent(file))
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    plugin, system = table_in(document, "plugin"), table_in(document, "system")
    rows = {
        "algorithm": f"{document.get('algorithm')} ({plugin.get('distribution')} {plugin.get('version')})",
        "environment": f"{document.get('environment')}, {document.get('num_timesteps')} steps, seed {document.get('seed')}",
        "observation": _short(document.get("observation_space")),
        "action": _short(document.get("action_space")),
        "made with": ", ".join(f"{name} {value}" for name, value in system.items()),
    }
    not_stored = document.get("not_stored")
    if isinstance(not_stored, list) and not_stored:
        names = ", ".join(map(str, not_stored))
        rows["not stored"] = f"{names} (give them to load through custom_objects)"
    for name, text in rows.items():
        typer.echo(f"{name + ':':<14}{one_line(text)}")
    for section, shapes in shapes_in(document).items():
        count = sum(map(math.prod, shapes.values()))
        typer.echo(f"section:      {one_line(section)}, {len(shapes)} tensors, {count:,} numbers")
    settings = textwrap.fill(
        json.dumps(document.get("config")),
        width=120,
        initial_indent="settings:     ",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo(settings)


def _inspect_data(file: Path, *, as_json: bool) -> None:
    from rlsdk.buffers.data_set_summary import summary_of

    found = summary_of(file)
    if as_json:
        typer.echo(json.dumps(found.as_table(), indent=1))
        return
    for name, text in found.rows().items():
        typer.echo(f"{name + ':':<14}{one_line(text)}")


def _short(space: object) -> str:
    text = json.dumps(space)
    return text if len(text) <= 100 else text[:97] + "..."
