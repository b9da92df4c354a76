"""Listeners on a training run, all counted in environment steps."""

from rlsdk.callbacks.callback import Callback, FunctionCallback, LambdaCallback, StepCounter, as_callbacks
from rlsdk.callbacks.checkpoint import CheckpointCallback
from rlsdk.callbacks.evaluation import EvalCallback
from rlsdk.callbacks.interrupt import StopOnInterrupt
from rlsdk.callbacks.periodic import EveryNSteps, ParameterHistograms
from rlsdk.callbacks.progress import ProgressBar
from rlsdk.callbacks.stopping import StopOnNoImprovement, StopOnRewardThreshold

__all__ = [
    "Callback",
    "CheckpointCallback",
    "EvalCallback",
    "EveryNSteps",
    "FunctionCallback",
    "LambdaCallback",
    "ParameterHistograms",
    "ProgressBar",
    "StepCounter",
    "StopOnInterrupt",
    "StopOnNoImprovement",
    "StopOnRewardThreshold",
    "as_callbacks",
]
