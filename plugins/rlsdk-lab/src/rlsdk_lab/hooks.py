"""The hook that the entry point names: curves of runs that ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlsdk.registry import hookimpl


@hookimpl
def reports() -> dict[str, Callable[[Path], None]]:
    """Name -> function of the folder of a run or sweep that ended."""
    return {"curves": _draw}


def _draw(folder: Path) -> None:
    # imported when a run ends: asking a plugin for its reports must not import torch
    from rlsdk_lab.plotting import plot_ended

    plot_ended(folder)
