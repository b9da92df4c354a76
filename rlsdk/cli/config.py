"""`rlsdk config ALGO`"""

from __future__ import annotations

from typing import Annotated

import typer

from rlsdk.registry import load
from rlsdk.settings import commented_toml, parse_assignments, structure, unstructure


def show_config(
    algorithm: Annotated[str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.")],
    assignments: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE, may be repeated.")] = None,
) -> None:
    """Print a commented settings file: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    settings = {"policy": spec.policies[0], **parse_assignments(assignments or [])}
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)
