"""Arguments and options whose values the shell can complete: algorithms, environments, presets, sinks and executors.

This module imports neither torch nor a plugin, because users wait for the result after they press the tab key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from rlsdk.errors import RlsdkError
from rlsdk.registry import extensions, preset_names
from rlsdk.registry.discovery import algorithms

SINKS = ("console", "tensorboard")
EXECUTORS = ("in-process",)
"""The executors of rlsdk itself, listed here because their modules import torch."""


def complete(incomplete: str, values: Callable[[], Iterable[str]]) -> list[str]:
    """Return the values that begin with `incomplete`, for the completion of a shell.

    An error of rlsdk gives an empty list, because a shell cannot show it.
    """
    try:
        return [value for value in values() if value.startswith(incomplete)]
    except RlsdkError:
        return []


def complete_algorithm(incomplete: str) -> list[str]:
    """Return the ids of the algorithms that can be used and begin with `incomplete`."""
    return complete(incomplete, _usable)


def complete_preset(context: typer.Context, incomplete: str) -> list[str]:
    """Return the presets of the algorithm on the command line. Without an algorithm, return those of all algorithms."""
    return complete(incomplete, lambda: _presets(context))


def complete_environment(context: typer.Context, incomplete: str) -> list[str]:
    """Return the environments for which the algorithm on the command line has presets."""
    names = complete("", lambda: _presets(context))
    alone = (name for name in names if not any(name.startswith(f"{other}-") for other in names))  # without variants
    return complete(incomplete, lambda: alone)


def complete_sink(incomplete: str) -> list[str]:
    """Return the names of metric sinks that begin with `incomplete`."""
    return complete(incomplete, lambda: (*SINKS, *extensions("sinks")))


def complete_executor(incomplete: str) -> list[str]:
    """Return the names of executors that begin with `incomplete`."""
    return complete(incomplete, lambda: (*EXECUTORS, *extensions("executors")))


def _presets(context: typer.Context) -> list[str]:
    # while the value of an option is being completed, the parser leaves the arguments unparsed
    named = context.params.get("algorithm") or next(iter(context.args), None)
    algorithms_meant = [str(named)] if named else _usable()
    return sorted({name for algorithm in algorithms_meant for name in preset_names(algorithm)})


def _usable() -> list[str]:
    return [plugin.id for plugin in algorithms() if plugin.problem is None]


Algorithm = Annotated[
    str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.", autocompletion=complete_algorithm)
]
Environment = Annotated[
    str | None,
    typer.Option("--env", help="gymnasium id of the environment.", autocompletion=complete_environment),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        help="Where the work runs: processes, in-process, or an executor of a plugin.",
        autocompletion=complete_executor,
    ),
]
Sinks = Annotated[
    list[str] | None,
    typer.Option(
        "--logger",
        help="Further logger: tensorboard, console, or a plugin's. Can be repeated.",
        autocompletion=complete_sink,
    ),
]
