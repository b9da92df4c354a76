"""The hook that the entry point of this package names. torch is imported when an executor is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from rlsdk_parallel.executors import Processes


@hookimpl
def executors() -> dict[str, Callable[[int], Processes]]:
    """Name of an executor -> function that makes it for a number of workers."""
    return {"processes": _processes}


def _processes(workers: int) -> Processes:
    from rlsdk_parallel.executors import Processes

    return Processes(workers)
