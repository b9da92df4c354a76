"""Listeners on a training run, all counted in environment steps."""

from rlsdk.callbacks.callback import Callback, FunctionCallback, StepCounter, as_callbacks
from rlsdk.callbacks.checkpoint import CheckpointCallback
from rlsdk.callbacks.evaluation import EvalCallback

__all__ = ["Callback", "CheckpointCallback", "EvalCallback", "FunctionCallback", "StepCounter", "as_callbacks"]
