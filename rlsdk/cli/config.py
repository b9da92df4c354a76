"""`rlsdk config ALGO`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlsdk.errors import SettingsError, suggest
from rlsdk.registry import load, presets
from rlsdk.settings import commented_toml, merge, parse_assignments, structure, unstructure


def show_config(
    algorithm: Annotated[str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting. Can be repeated.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Start from the tuned settings for this environment.")] = None,
) -> None:
    """Print a settings file with comments: `rlsdk config tqc > run.toml`, then `rlsdk run tqc --config run.toml`."""
    spec = load(algorithm)
    tuned = _tuned(algorithm, preset) if preset else {}
    settings = merge({"policy": spec.policies[0], **tuned}, parse_assignments(assignments or []))
    values = unstructure(structure(settings, spec.config_type))
    header = f"settings of {spec.id}; a line starting with '# name =' is unset"
    typer.echo(commented_toml(spec.config_type, values, header=header), nl=False)


def _tuned(algorithm: str, env: str) -> dict[str, Any]:
    known = {preset.env: preset.settings for preset in presets(algorithm)}
    if env not in known:
        raise SettingsError(f"{algorithm} has no preset for {env!r}; {suggest(env, known)}")
    return known[env]
