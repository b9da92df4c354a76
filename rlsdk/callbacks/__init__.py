"""Callbacks: objects whose methods are called during training. All their intervals are counted in environment steps."""

from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback, CallbackList, LambdaCallback, StepCounter
from rlsdk.callbacks.checkpoint import CheckpointCallback, RestoreOnDivergence, set_aside
from rlsdk.callbacks.evaluation import EvalCallback
from rlsdk.callbacks.periodic import (
    EveryNSteps,
    LogEveryNSteps,
    ParameterHistograms,
    ProgressBar,
    StopOnInterrupt,
    StopOnMaxEpisodes,
    StopOnNoImprovement,
    StopOnRewardThreshold,
)
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.training.run import Run, says_stop

__all__ = [
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EvalCallback",
    "EveryNSteps",
    "LambdaCallback",
    "LogEveryNSteps",
    "ParameterHistograms",
    "ProgressBar",
    "RestoreOnDivergence",
    "Run",
    "StepCounter",
    "StopOnInterrupt",
    "StopOnMaxEpisodes",
    "StopOnNoImprovement",
    "StopOnRewardThreshold",
    "says_stop",
    "set_aside",
]

if not TYPE_CHECKING:
    # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
