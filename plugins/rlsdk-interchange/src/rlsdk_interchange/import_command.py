"""The command `rlsdk import`: agents of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli import Algorithm
from rlsdk.errors import SettingsError
from rlsdk.settings import merge, parse_assignments


def import_agent(
    algorithm: Algorithm,
    path: Annotated[Path, typer.Argument(help="The .zip file of stable-baselines3 or sb3-contrib.")],
    env: Annotated[str, typer.Option(help="gymnasium id of the environment it was trained on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Agent file to write.")],
    vecnormalize: Annotated[
        Path | None, typer.Option(help="The file that VecNormalize.save wrote, or .npz; see docs/interchange.md.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting. Can be repeated.")
    ] = None,
) -> None:
    """Convert a model of stable-baselines3 or sb3-contrib to an agent file. No code in the model is run."""
    from rlsdk.agent import as_agent_file
    from rlsdk_interchange.sb3 import import_sb3

    target = as_agent_file(out)
    if target.exists() and path.exists() and target.samefile(path):
        raise SettingsError(f"--out {out} is the model itself, which would be replaced; choose another name")
    if target.exists():
        raise SettingsError(f"{target} exists; choose another --out, or remove it first")
    changes = merge({}, parse_assignments(assignments or []))
    agent = import_sb3(path, algorithm, env, vecnormalize=vecnormalize, **changes)
    written = agent.save(out)
    typer.echo(f"{algorithm} agent for {env}: {written}")
