"""Callbacks under the names that stable-baselines3 gives them."""

from __future__ import annotations

from rlsdk.callbacks.evaluation import EvalCallback
from rlsdk.callbacks.periodic import (
    EveryNSteps,
    LogEveryNSteps,
    ProgressBar,
    StopOnMaxEpisodes,
    StopOnNoImprovement,
    StopOnRewardThreshold,
)

EveryNTimesteps = EveryNSteps
LogEveryNTimesteps = LogEveryNSteps
MaskableEvalCallback = EvalCallback
ProgressBarCallback = ProgressBar
StopTrainingOnMaxEpisodes = StopOnMaxEpisodes
StopTrainingOnRewardThreshold = StopOnRewardThreshold


def StopTrainingOnNoModelImprovement(  # noqa: N802  # the name in stable-baselines3
    max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0
) -> StopOnNoImprovement:
    """A callback that stops after more than `max_no_improvement_evals` evaluations in a row without a better mean return; the
    first `min_evals` do not count."""
    return StopOnNoImprovement(max_no_improvement_evals + 1, start_after=min_evals, verbose=verbose)
