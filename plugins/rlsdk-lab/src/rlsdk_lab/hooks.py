"""The hook that the entry point names: curves of runs that ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlsdk.registry import hookimpl


@hookimpl
def reports() -> dict[str, Callable[[Path], None]]:
    """Name -> function of the folder of a run or sweep that ended."""
    from rlsdk_lab.plotting import plot_ended

    return {"curves": plot_ended}
