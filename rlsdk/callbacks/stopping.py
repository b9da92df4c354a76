"""Callbacks that end a training early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback
from rlsdk.errors import SettingsError
from rlsdk.records import EnvStep, Report
from rlsdk.runtime.output import print_line

if TYPE_CHECKING:
    from rlsdk.evaluation.evaluate import Evaluation
    from rlsdk.training.run import Run

SOURCES = ("evaluation", "training")


class StopOnRewardThreshold(Callback):
    """Stops training once the mean return of an evaluation, or of the recent training episodes, reaches `reward_threshold`.

    With `on="evaluation"` the run needs an `EvalCallback`. With `on="training"` training stops only when the window of recent
    episodes (`stats_window_size`) is full.
    """

    def __init__(self, reward_threshold: float, verbose: int = 0, *, on: str = "evaluation") -> None:
        if on not in SOURCES:
            raise SettingsError(f"StopOnRewardThreshold on = {on!r} must be one of {', '.join(SOURCES)}")
        self.reward_threshold, self.verbose, self.on = float(reward_threshold), verbose, on

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        return self.on != "evaluation" or self._goes_on(run, evaluation.mean)

    def on_report(self, run: Run, report: Report) -> bool | None:
        if (
            self.on != "training"
            or not report.episodes
            or len(run.episode_statistics.window) < (run.episode_statistics.window.maxlen or 1)
        ):
            return None
        mean = run.mean_return
        return mean is None or self._goes_on(run, mean)

    def _goes_on(self, run: Run, mean: float) -> bool:
        reached = mean >= self.reward_threshold
        if reached and self.verbose:
            print_line(
                f"training stops at step {run.num_timesteps}: the mean return {mean:.2f} has reached {self.reward_threshold}"
            )
        return not reached


class StopOnNoImprovement(Callback):
    """Stops training after `evaluations` evaluations in a row without a better mean return; the first `start_after` do not
    count."""

    def __init__(self, evaluations: int, *, start_after: int = 0, verbose: int = 0) -> None:
        if evaluations < 1 or start_after < 0:
            raise SettingsError(
                f"StopOnNoImprovement({evaluations}, start_after={start_after}): at least 1, and not negative"
            )
        self.evaluations, self.start_after, self.verbose = evaluations, start_after, verbose
        self.seen, self.since_best, self.best = 0, 0, float("-inf")

    def on_training_start(self, run: Run) -> bool | None:
        self.seen, self.since_best, self.best = 0, 0, float("-inf")
        return None

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> bool | None:
        self.seen += 1
        better = evaluation.mean > self.best
        self.best = max(self.best, evaluation.mean)
        self.since_best = 0 if better or self.seen <= self.start_after else self.since_best + 1
        if self.since_best >= self.evaluations and self.verbose:
            print_line(
                f"training stops at step {run.num_timesteps}: no better evaluation in the last {self.since_best}"
            )
        return self.since_best < self.evaluations


class StopOnMaxEpisodes(Callback):
    """Stops training after `max_episodes` episodes, multiplied by the number of environments that are stepped together.

    Training ends before the next step; population methods finish the running episodes first.
    """

    def __init__(self, max_episodes: int, verbose: int = 0) -> None:
        if isinstance(max_episodes, bool) or not isinstance(max_episodes, int) or max_episodes < 1:
            raise SettingsError(f"StopOnMaxEpisodes max_episodes = {max_episodes!r} must be a positive whole number")
        self.max_episodes, self.verbose = max_episodes, verbose
        self.n_episodes = 0

    def on_training_start(self, run: Run) -> None:
        self.n_episodes = 0

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        self.n_episodes += len(step.episodes)
        over = self.n_episodes >= self.max_episodes * len(step.reward)
        if over and self.verbose:
            print_line(f"training stops at step {run.num_timesteps}: {self.n_episodes} episodes were played")
        return not over
