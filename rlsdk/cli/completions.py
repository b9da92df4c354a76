"""What the shell completes besides options: ids, environments, presets, suites, sinks, executors and trained agents.

Nothing here imports torch or a plugin, because a user who presses the tab key waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from rlsdk.errors import RlsdkError
from rlsdk.registry import algorithms, extensions, preset_names

SINKS = ("console", "tensorboard")
EXECUTORS = ("in-process", "processes")
"""Those of rlsdk itself. Their modules import torch."""


def complete_algorithm(incomplete: str) -> list[str]:
    """Ids of the algorithms that can be used."""
    return _beginning(incomplete, _usable)


def complete_preset(context: typer.Context, incomplete: str) -> list[str]:
    """Presets of the algorithm on the line; without one, of all algorithms."""
    return _beginning(incomplete, lambda: _presets(context))


def complete_environment(context: typer.Context, incomplete: str) -> list[str]:
    """Environments that the algorithm on the line has presets for."""

    def environments() -> list[str]:
        names = _presets(context)
        return [name for name in names if not any(name.startswith(f"{other}-") for other in names)]  # no variants

    return _beginning(incomplete, environments)


def complete_suite(incomplete: str) -> list[str]:
    """Names of suites."""
    from rlsdk.experiments.suite import suites

    return _beginning(incomplete, suites)


def complete_sink(incomplete: str) -> list[str]:
    """Names of metric sinks."""
    return _beginning(incomplete, lambda: (*SINKS, *extensions("sinks")))


def complete_executor(incomplete: str) -> list[str]:
    """Names of executors."""
    return _beginning(incomplete, lambda: (*EXECUTORS, *extensions("executors")))


def complete_agent(incomplete: str) -> list[str]:
    """Names of trained agents."""
    from rlsdk.interchange.zoo import agents

    return _beginning(incomplete, lambda: [agent.name for agent in agents()])


def _presets(context: typer.Context) -> list[str]:
    # an option without its value, which is being completed, leaves arguments among the unparsed ones
    named = context.params.get("algorithm") or next(iter(context.args), None)
    algorithms_meant = [str(named)] if named else _usable()
    return sorted({name for algorithm in algorithms_meant for name in preset_names(algorithm)})


def _usable() -> list[str]:
    return [plugin.id for plugin in algorithms() if plugin.problem is None]


def _beginning(incomplete: str, values: Callable[[], Iterable[str]]) -> list[str]:
    """The values that begin so; none where a plugin is broken, as an error has no place in a shell's completion."""
    try:
        return [value for value in values() if value.startswith(incomplete)]
    except RlsdkError:
        return []


Algorithm = Annotated[
    str, typer.Argument(help="Id of the algorithm, see `rlsdk list`.", autocompletion=complete_algorithm)
]
