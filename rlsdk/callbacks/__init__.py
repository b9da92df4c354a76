"""Listeners on a training run, all counted in environment steps."""

from rlsdk.callbacks.callback import Callback, FunctionCallback, StepCounter, as_callbacks
from rlsdk.callbacks.checkpoint import CheckpointCallback
from rlsdk.callbacks.evaluation import EvalCallback
from rlsdk.callbacks.interrupt import StopOnInterrupt
from rlsdk.callbacks.progress import ProgressBar

__all__ = [
    "Callback",
    "CheckpointCallback",
    "EvalCallback",
    "FunctionCallback",
    "ProgressBar",
    "StepCounter",
    "StopOnInterrupt",
    "as_callbacks",
]
