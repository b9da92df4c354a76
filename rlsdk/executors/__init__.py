"""Executors run independent items of work: in this process, in processes of this machine, or in those of a plugin."""

from __future__ import annotations

from collections.abc import Callable

from rlsdk.errors import SettingsError, suggest
from rlsdk.executors.processes import Processes
from rlsdk.executors.serial import SerialExecutor
from rlsdk.interfaces import Executor
from rlsdk.registry import extension, extensions
from rlsdk.registry.loading import is_offered

EXECUTORS: dict[str, Callable[[int], Executor]] = {"in-process": lambda _: SerialExecutor(), "processes": Processes}
"""The executors that need no plugin."""

__all__ = ["EXECUTORS", "SerialExecutor", "Processes", "make_executor", "names"]


def names() -> tuple[str, ...]:
    """Every executor there is; no plugin is imported."""
    return (*EXECUTORS, *extensions("executors"))


def is_executor(name: str) -> bool:
    """Whether there is an executor called `name`; `make_executor` raises if its plugin is broken."""
    return name in EXECUTORS or is_offered("executors", name)


def make_executor(name: str, workers: int) -> Executor:
    """The executor called `name`, a plugin's or one of ours, with `workers` workers.

    Raises:
        SettingsError: no such executor, or workers < 1. PluginError: the plugin that offers it is broken.
    """
    if workers < 1:
        raise SettingsError(f"{workers} workers can do nothing; give 1 or more")
    if name in EXECUTORS:
        return EXECUTORS[name](workers)
    if not is_executor(name):
        raise SettingsError(f"unknown executor {name!r}; {suggest(name, names())}")
    made: Executor = extension("executors", name)(workers)
    return made
