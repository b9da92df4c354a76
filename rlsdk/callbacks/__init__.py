"""Callbacks: objects whose methods are called during training. All their intervals are counted in environment steps."""

from typing import TYPE_CHECKING

from rlsdk.callbacks.accepted import CallbackList
from rlsdk.callbacks.callback import Callback, LambdaCallback
from rlsdk.callbacks.checkpoint import CheckpointCallback
from rlsdk.callbacks.documented import BaseCallback, EventCallback, FunctionCallback
from rlsdk.callbacks.documented_names import (
    EveryNTimesteps,
    LogEveryNTimesteps,
    MaskableEvalCallback,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from rlsdk.callbacks.earlier_training import set_aside
from rlsdk.callbacks.evaluation import EvalCallback
from rlsdk.callbacks.interrupt import StopOnInterrupt
from rlsdk.callbacks.periodic import EveryNSteps, LogEveryNSteps, ParameterHistograms
from rlsdk.callbacks.progress import ProgressBar
from rlsdk.callbacks.restoring import RestoreOnDivergence
from rlsdk.callbacks.stopping import StopOnMaxEpisodes, StopOnNoImprovement, StopOnRewardThreshold
from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.training.run import Run

__all__ = [
    "BaseCallback",
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EvalCallback",
    "EventCallback",
    "EveryNSteps",
    "EveryNTimesteps",
    "FunctionCallback",
    "LambdaCallback",
    "LogEveryNSteps",
    "LogEveryNTimesteps",
    "MaskableEvalCallback",
    "ParameterHistograms",
    "ProgressBar",
    "ProgressBarCallback",
    "RestoreOnDivergence",
    "Run",
    "StopOnInterrupt",
    "StopOnMaxEpisodes",
    "StopOnNoImprovement",
    "StopOnRewardThreshold",
    "StopTrainingOnMaxEpisodes",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
    "set_aside",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
