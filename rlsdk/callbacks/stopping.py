"""Rules that end a training early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback
from rlsdk.errors import SettingsError
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.evaluate import Evaluation
    from rlsdk.train import Run

SOURCES = ("evaluation", "training")


class StopOnRewardThreshold(Callback):
    """Stops once the mean return reaches `threshold`: that of an evaluation, or of the recent training episodes.

    With `on="evaluation"` the run needs an `EvalCallback`; with `on="training"` the window of recent episodes
    (`stats_window_size`) must be full.
    """

    def __init__(self, threshold: float, *, on: str = "evaluation") -> None:
        if on not in SOURCES:
            raise SettingsError(f"StopOnRewardThreshold on = {on!r} must be one of {', '.join(SOURCES)}")
        self.threshold, self.on = float(threshold), on

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        return self.on != "evaluation" or evaluation.mean < self.threshold

    def on_report(self, run: Run, report: Report) -> bool | None:
        if self.on != "training" or not report.episodes or len(run.tally.window) < (run.tally.window.maxlen or 1):
            return None
        mean = run.mean_return
        return mean is None or mean < self.threshold


class StopOnNoImprovement(Callback):
    """Stops after `evaluations` evaluations in a row without a better mean return; the first `start_after` do not count."""

    def __init__(self, evaluations: int, *, start_after: int = 0) -> None:
        if evaluations < 1 or start_after < 0:
            raise SettingsError(
                f"StopOnNoImprovement({evaluations}, start_after={start_after}): at least 1, and not negative"
            )
        self.evaluations, self.start_after = evaluations, start_after
        self.seen, self.since_best, self.best = 0, 0, float("-inf")

    def on_training_start(self, run: Run) -> bool | None:
        self.seen, self.since_best, self.best = 0, 0, float("-inf")
        return None

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        self.seen += 1
        better = evaluation.mean > self.best
        self.best = max(self.best, evaluation.mean)
        self.since_best = 0 if better or self.seen <= self.start_after else self.since_best + 1
        return self.since_best < self.evaluations
