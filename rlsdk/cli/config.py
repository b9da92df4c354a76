"""`rlsdk config ALGO`"""

from __future__ import annotations

from typing import Annotated

import typer

from rlsdk.cli.completions import Algorithm, complete_preset
from rlsdk.registry import load, named_preset
from rlsdk.settings import commented_toml, merge, parse_assignments, structure, unstructure


def show_config(
    algorithm: Algorithm,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting. Can be repeated.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from tuned settings: an environment id, or another name that `rlsdk info` lists.",
            autocompletion=complete_preset,
        ),
    ] = None,
) -> None:
    """Print a settings file with comments: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    tuned = named_preset(algorithm, preset).settings if preset else {}
    settings = merge({"policy": spec.policies[0], **tuned}, parse_assignments(assignments or []))
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)
