"""The hooks that the entry point of this package names. A sink's module is imported when the sink is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from rlsdk_trackers.tracker import Tracker


@hookimpl
def sinks() -> dict[str, Callable[[Path], Tracker]]:
    """Name of a sink -> function that makes it for a run directory."""
    return {"mlflow": _mlflow, "trackio": _trackio, "wandb": _wandb}


def _mlflow(folder: Path) -> Tracker:
    from rlsdk_trackers.mlflow_sink import MLflowSink

    return MLflowSink(folder)


def _trackio(folder: Path) -> Tracker:
    from rlsdk_trackers.trackio_sink import TrackioSink

    return TrackioSink(folder)


def _wandb(folder: Path) -> Tracker:
    from rlsdk_trackers.wandb_sink import WandbSink

    return WandbSink(folder)
