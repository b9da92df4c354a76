"""The command `rlsdk new`: write a plugin package to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rlsdk.runtime import pip_install
from rlsdk_testing.scaffold import families, first_steps, new_package


def new_plugin(
    identity: Annotated[str, typer.Argument(metavar="ID", help="Id of the algorithm, such as my-algo.")],
    family: Annotated[str, typer.Option(help=f"One of {', '.join(families())}.")] = "on-policy",
    actions: Annotated[
        str | None, typer.Option(help="continuous or discrete, for off-policy.", show_default="discrete")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder in which the package's folder is created.")] = Path(),
) -> None:
    """Write a complete plugin package: it installs, trains and passes the contract checks. You fill in two functions."""
    folder = new_package(identity, family, out, actions=actions)
    place, run = first_steps(identity, family, actions)
    typer.echo(f"{folder}: a plugin with the {family} algorithm {identity!r}")
    typer.echo(f"fill in the two functions marked FILL IN in {folder / place}, then:")
    typer.echo(f"  {pip_install(f'{os.path.join(os.curdir, folder)}[dev]', options='-e')}")
    typer.echo(f"  rlsdk check {identity}")
    typer.echo(f"  {run}")
