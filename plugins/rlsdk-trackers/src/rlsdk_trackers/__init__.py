"""Loggers that write to experiment trackers. Classes are imported on first use, so that listing plugins is fast; the
library of a tracker is imported when its logger is made."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_trackers.mlflow_sink import MLflowSink as MLflowSink
    from rlsdk_trackers.tracker import Tracker as Tracker
    from rlsdk_trackers.trackio_sink import TrackioSink as TrackioSink
    from rlsdk_trackers.wandb_sink import WandbSink as WandbSink

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__,
    MLflowSink="rlsdk_trackers.mlflow_sink",
    Tracker="rlsdk_trackers.tracker",
    TrackioSink="rlsdk_trackers.trackio_sink",
    WandbSink="rlsdk_trackers.wandb_sink",
)
