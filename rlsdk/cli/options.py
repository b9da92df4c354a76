"""Arguments and options that several commands have: counts, environments, wrappers, places of output."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from rlsdk.errors import SettingsError, shown
from rlsdk.runs.request import MAX_COUNT, MAX_ENVS, MAX_EPISODES, MAX_RESTORES, MAX_THREADS
from rlsdk.runtime.files import write_whole

MOST_SEED = 2**32 - 1
"""The largest seed: the upper bound of the setting `seed`."""
MOST_ENVS, MOST_EPISODES, MOST_RESTORES, MOST_THREADS = MAX_ENVS, MAX_EPISODES, MAX_RESTORES, MAX_THREADS


def steps_option(text: str, least: int = 1) -> Any:
    """Return an option of Typer for a count of environment steps. It also accepts 100_000 and 1e5.

    Args:
        text: the help of the option.
        least: the smallest count, 0 or 1.
    """

    def parse(given: str) -> int:
        number = _whole(str(given))
        if number is None or not least <= number <= MAX_COUNT:
            kind = "positive whole number" if least else "whole number of at least 0"
            raise typer.BadParameter(f"{shown(given, 40)} must be a {kind} up to 2**53, such as 100000 or 1e5")
        return number

    return typer.Option(parser=parse, metavar="<int>", help=text)


def _whole(text: str) -> int | None:
    """Parse a whole number; None if the text is not a number or has decimals."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if (value := float(text)).is_integer():
            return int(value)
    return None


EnvKwargs = Annotated[
    list[str] | None,
    typer.Option("--env-kwargs", help="NAME=VALUE: an argument of the environment. Can be repeated."),
]
Wrappers = Annotated[
    list[str] | None,
    typer.Option(
        "--wrapper",
        help="A wrapper of the environment, innermost first: a name of gymnasium.wrappers or rlsdk.environments, or"
        " package.module:Class, also with arguments: 'NAME(ARGUMENT=VALUE)'. Can be repeated.",
    ),
]
TrustedFile = Annotated[
    bool,
    typer.Option("--trust", help="Allow an agent file from elsewhere to name a module to import for its environment."),
]


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file, if there is one.")]


def require_free(target: Path, *, overwrite: bool) -> None:
    """Check that a command may write `target`.

    Raises:
        SettingsError: it is a folder, or exists and may not be replaced.
    """
    if target.is_dir():
        raise SettingsError(f"{target} is a folder; choose another --out")
    if target.exists() and not overwrite:
        raise SettingsError(f"{target} exists; choose another --out, or add --overwrite")


def write_agent(out: Path, data: bytes, *, overwrite: bool) -> Path:
    """Write the bytes of an agent file. Return its path: `out`, with the suffix `.rlsdk` added if it has none of agent files.

    A file that already holds these bytes is accepted.

    Raises:
        SettingsError: as `require_free`.
        ArtifactError: the file cannot be written, or `out` names no file.
    """
    from rlsdk.agent.agent_file import as_agent_file  # imports torch

    target = as_agent_file(out)
    if not (target.is_file() and target.read_bytes() == data):
        require_free(target, overwrite=overwrite)
    write_whole(target, data)
    return target
