"""The command `rlsdk import`: agents of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsdk.cli import Algorithm
from rlsdk.errors import PluginError, RlsdkError, SettingsError, message_of, one_line, shown
from rlsdk.registry import extension, extensions
from rlsdk.settings import merge, parse_assignments

if TYPE_CHECKING:
    from rlsdk.agent import Agent

SB3 = "sb3"


def complete_format(incomplete: str) -> list[str]:
    """Return the formats that installed packages can read and that begin with `incomplete`."""
    return [name for name in extensions("importers") if name.startswith(incomplete)]


def imported(form: str, path: Path, algorithm: str, env: str, options: Mapping[str, object]) -> Agent:
    """Call the importer of the format `form` that an installed package offers, and return the agent.

    Raises:
        PluginError: two packages offer it, the package is broken, or the importer raises an exception or returns no agent.
    """
    from rlsdk.agent import Agent

    importer = extension("importers", form)
    who = f"the importer {form!r} of {importer.__module__.partition('.')[0]}"
    try:
        agent = importer(path, algorithm, env, **options)
    except RlsdkError:
        raise
    except Exception as error:  # code of another package
        cause = one_line(f"{type(error).__name__}: {message_of(error)}", 500)
        raise PluginError(f"{who} raised {cause}; the file may be of another format: see --format") from error
    if not isinstance(agent, Agent):
        raise PluginError(f"{who} returned {shown(agent, 60)}; it must return an Agent")
    return agent


def import_agent(
    algorithm: Algorithm,
    path: Annotated[Path, typer.Argument(help="The file, such as the .zip file of stable-baselines3 or sb3-contrib.")],
    env: Annotated[str, typer.Option(help="gymnasium id of the environment it was trained on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Agent file to write.")],
    form: Annotated[
        str, typer.Option("--format", help="Format of the file; packages can add some.", autocompletion=complete_format)
    ] = SB3,
    vecnormalize: Annotated[
        Path | None, typer.Option(help="The file that VecNormalize.save wrote, or .npz; see docs/interchange.md.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting. Can be repeated.")
    ] = None,
) -> None:
    """Convert an agent of another library to an agent file, by default one of stable-baselines3 or sb3-contrib. No code in such
    a model is run."""
    from rlsdk.agent import as_agent_file

    if vecnormalize is not None and form != SB3:
        raise SettingsError(f"--vecnormalize belongs to --format {SB3}; leave it out with --format {form}")
    target = as_agent_file(out)
    if target.exists() and path.exists() and target.samefile(path):
        raise SettingsError(f"--out {out} is the model itself, which would be replaced; choose another name")
    if target.exists():
        raise SettingsError(f"{target} exists; choose another --out, or remove it first")
    options = merge({}, parse_assignments(assignments or []))
    if vecnormalize is not None:
        options["vecnormalize"] = vecnormalize
    written = imported(form, path, algorithm, env, options).save(out)
    typer.echo(f"{algorithm} agent for {env}: {written}")
