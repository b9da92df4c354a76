"""The command `rlsdk zoo`: trained agents of installed packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from rlsdk.cli import Overwrite, complete, write_agent
from rlsdk.errors import one_line
from rlsdk.runtime import counted, print_line

if TYPE_CHECKING:
    from rlsdk_zoo.installed import ZooAgent


def complete_agent(incomplete: str) -> list[str]:
    """Return the names of trained agents that begin with `incomplete`."""
    from rlsdk_zoo.installed import agents

    return complete(incomplete, lambda: [agent.name for agent in agents()])


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,  # `rlsdk --install-completion` completes these commands too
    rich_markup_mode=None,
    help="List, show and copy trained agents of installed packages such as rlsdk-zoo.",
)
Name = Annotated[
    str, typer.Argument(help="ALGORITHM/ENVIRONMENT, see `rlsdk zoo list`.", autocompletion=complete_agent)
]


@app.command("list", short_help="List the trained agents.", epilog="Example: rlsdk zoo list Pendulum")
def list_agents(
    text: Annotated[
        str, typer.Argument(help="Show only agents with this text in their name, in upper or lower case.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the trained agents with their mean returns. Imports neither torch nor any plugin."""
    from rlsdk_zoo.installed import agents

    known = agents()
    found = [agent for agent in known if text.lower() in agent.qualified_name.lower()]
    if not found:
        print_line(f"no name of the {len(known)} trained agents has {text!r} in it", sys.stderr)
    if as_json:
        typer.echo(json.dumps([_record(agent) for agent in found], indent=1))
        return
    if not found:
        return
    rows: list[tuple[str, ...]] = [("name", "mean return [95 %]", "steps", "kB", "zoo")]
    for agent in found:
        cells = (agent.name, str(agent.result), f"{agent.steps:,}", f"{agent.size / 1000:.0f}", agent.zoo)
        rows.append(tuple(map(one_line, cells)))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command("show", short_help="Print the card of an agent.", epilog="Example: rlsdk zoo show tqc/Pendulum-v1")
def show_agent(name: Name) -> None:
    """Print the card of a trained agent: its results, how to use it, the command that trains it, and hashes."""
    from rlsdk_zoo.installed import find

    typer.echo(find(name).card(), nl=False)


@app.command(
    "get",
    short_help="Write the file of an agent.",
    epilog="Example: rlsdk zoo get tqc/Pendulum-v1 --out pendulum.rlsdk",
)
def get_agent(
    name: Name,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (default: named after the agent, in the current folder)."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Check the hash of a trained agent and write its agent file. Every command that reads agents accepts this file."""
    from rlsdk_zoo.installed import find

    agent = find(name)
    target = write_agent(out or Path(agent.name.replace("/", "-")), agent.read(), overwrite=overwrite)
    played = counted(agent.result.episodes, "episode")
    typer.echo(f"{target}: mean return {agent.result} over {played}; needs {agent.package}")


def _record(agent: ZooAgent) -> dict[str, object]:
    return {"name": agent.name, **attrs.asdict(agent), "path": str(agent.path)}
