"""`rlsdk inspect FILE`"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer


def inspect_file(
    file: Annotated[Path, typer.Argument(help="Agent file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole manifest as JSON.")] = False,
) -> None:
    """Show what is in an agent file. Runs no code from it, builds nothing, needs no plugin."""
    from rlsdk.storage import choose
    from rlsdk.storage.agent_file import KIND

    document = choose.inspect(file, kind=KIND)
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    plugin, system = document.get("plugin", {}), document.get("system", {})
    typer.echo(f"algorithm:    {document.get('algorithm')} ({plugin.get('distribution')} {plugin.get('version')})")
    typer.echo(
        f"environment:  {document.get('environment')}, {document.get('num_timesteps')} steps, seed {document.get('seed')}"
    )
    typer.echo(f"observation:  {_short(document.get('observation_space'))}")
    typer.echo(f"action:       {_short(document.get('action_space'))}")
    typer.echo("made with:    " + ", ".join(f"{name} {value}" for name, value in system.items()))
    if document.get("not_stored"):
        typer.echo(f"not stored:   {', '.join(document['not_stored'])} (give them to load through custom_objects)")
    for section, tensors in document["tensors"].items():
        count = sum(math.prod(shape) for _, shape in tensors.values())
        typer.echo(f"section:      {section}, {len(tensors)} tensors, {count:,} numbers")
    typer.echo("settings:     " + json.dumps(document.get("config")))


def _short(space: object) -> str:
    text = json.dumps(space)
    return text if len(text) <= 100 else text[:97] + "..."
