"""Arguments and options that several commands have: counts, environments, wrappers, places of output."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import attrs
import typer

from rlsdk.cli import completions
from rlsdk.errors import SettingsError, shown
from rlsdk.runs.request import EPISODES, MAX_COUNT, MAX_ENVS, RunRequest
from rlsdk.runtime.files import write_whole

MOST_SEED = 2**32 - 1
"""The largest seed: the upper bound of the setting `seed`."""
MOST_ENVS, MOST_EPISODES = MAX_ENVS, int(EPISODES.most)


def steps_option(text: str, least: int = 1, group: str | None = None) -> Any:
    """Return an option of Typer for a count of environment steps. It also accepts 100_000 and 1e5.

    Args:
        text: the help of the option.
        least: the smallest count, 0 or 1.
        group: the title above it in the help.
    """

    def parse(given: str) -> int:
        number = _whole(str(given))
        if number is None or not least <= number <= MAX_COUNT:
            kind = "positive whole number" if least else "whole number of at least 0"
            raise typer.BadParameter(f"{shown(given, 40)} must be a {kind} up to 2**53, such as 100000 or 1e5")
        return number

    return typer.Option(parser=parse, metavar="<int>", help=text, rich_help_panel=group)


def _whole(text: str) -> int | None:
    """Parse a whole number; None if the text is not a number or has decimals."""
    # Not through float, which is exact up to 2**53 only.
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if (value := float(text)).is_integer():
            return int(value)
    return None


GROUPS: Mapping[str, tuple[str, ...]] = {
    "Training": ("steps", "policy_from", "exact_steps", "max_restores"),
    "Environment": ("env", "n_envs", "vectorization"),
    "Settings": ("preset",),
    "Evaluation": ("eval_every", "eval_episodes", "stop_at"),
    "Output": ("out", "checkpoint_every", "sinks", "profile"),
    "Resume": ("resume", "schedule_until", "trust"),
    "Speed": ("threads", "executor", "collectors", "max_lag"),
}
"""Group of options in the help of `rlsdk run` -> fields of `RunRequest`."""


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `RunRequest` that has a help text. They are in its `**options`."""
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    hints = {**get_type_hints(RunRequest), "sinks": list[str] | None}  # Typer knows no tuples of any length
    given = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[hints[field.name], _request_option(field)],
        )
        for field in attrs.fields(RunRequest)
        if "help" in field.metadata
    ]
    named = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.kind is not each.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([first, *given, *named])  # type: ignore[attr-defined]
    # some versions of Typer read the annotations here
    command.__annotations__ = {each.name: each.annotation for each in (first, *given, *named)}
    return command


def _request_option(field: attrs.Attribute[object]) -> Any:
    how = field.metadata
    group = next((title for title, names in GROUPS.items() if field.name in names), None)
    if how.get("steps"):
        return steps_option(how["help"], how["least"], group)
    name = how.get("name", f"--{field.name.replace('_', '-')}")
    complete = getattr(completions, how["complete"]) if "complete" in how else None
    # `RunRequest` checks numbers
    return typer.Option(
        name, help=how["help"], autocompletion=complete, metavar=how.get("metavar"), rich_help_panel=group
    )


EnvKwargs = Annotated[
    list[str] | None,
    typer.Option(
        "--env-kwargs",
        metavar="NAME=VALUE",
        help="An argument of the environment. Can be repeated.",
        rich_help_panel="Environment",
    ),
]
Wrappers = Annotated[
    list[str] | None,
    typer.Option(
        "--wrapper",
        metavar="WRAPPER",
        rich_help_panel="Environment",
        help="A wrapper of the environment, innermost first: a name of gymnasium.wrappers or of a package such as"
        " rlsdk-envs, or package.module:Class, also with arguments: 'NAME(ARGUMENT=VALUE)'. Can be repeated.",
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
