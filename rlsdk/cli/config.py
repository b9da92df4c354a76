"""`rlsdk config ALGO`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsdk.cli.completions import Algorithm, complete_environment, complete_preset
from rlsdk.errors import SettingsError
from rlsdk.experiments.rl_zoo import is_rl_zoo_file, rl_zoo_preset
from rlsdk.registry import AlgorithmSpec, Preset, load, named_preset
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
            help="Environment id: which table of a file of rl-baselines3-zoo.", autocompletion=complete_environment
        ),
    ] = None,
) -> None:
    """Print a settings file with comments: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    tuned = _preset(spec, preset, env).settings if preset else {}
    settings = merge({"policy": spec.policies[0], **tuned}, parse_assignments(assignments or []))
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)


def _preset(spec: AlgorithmSpec, name: str, env: str | None) -> Preset:
    if not is_rl_zoo_file(name):
        if env is not None:
            raise SettingsError("--env chooses a table of a file: give --preset FILE.yml, or leave it out")
        return named_preset(spec.id, name)
    if env is None:
        raise SettingsError(f"--preset {name} has a table for each environment: add --env ID")
    return rl_zoo_preset(Path(name), spec, env)
