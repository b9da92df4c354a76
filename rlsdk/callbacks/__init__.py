"""Callbacks: objects whose methods are called during training. All their intervals are counted in environment steps."""

from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import (
    BaseCallback,
    Callback,
    CallbackList,
    EventCallback,
    FunctionCallback,
    LambdaCallback,
)
from rlsdk.callbacks.checkpoint import CheckpointCallback, RestoreOnDivergence, set_aside
from rlsdk.callbacks.documented_names import (
    EveryNTimesteps,
    LogEveryNTimesteps,
    MaskableEvalCallback,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
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
