"""The command `rlsdk config ALGO`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlsdk.cli.completions import Algorithm, complete_environment, complete_preset
from rlsdk.errors import SettingsError
from rlsdk.experiments.rl_zoo import chosen_preset, is_rl_zoo_file
from rlsdk.registry import load
from rlsdk.settings import commented_toml, merge, parse_assignments, structure, unstructure


def show_config(
    algorithm: Algorithm,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting. Can be repeated.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from tuned settings: an environment id, another name that `rlsdk info` lists, or a settings file of"
            " rl-baselines3-zoo, .yml.",
            autocompletion=complete_preset,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment id that selects a table in a settings file of rl-baselines3-zoo.",
            autocompletion=complete_environment,
        ),
    ] = None,
) -> None:
    """Print a settings file with comments: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    if env is not None and not is_rl_zoo_file(preset or ""):
        raise SettingsError("--env chooses a table of a file: give --preset FILE.yml, or leave it out")
    tuned = chosen_preset(preset, spec, env).settings if preset else {}
    settings = merge({"policy": spec.policies[0], **tuned}, parse_assignments(assignments or []))
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)
