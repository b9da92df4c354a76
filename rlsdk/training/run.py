"""Executes one call of `learn`: runs the rounds of the plan, checks their reports, and notifies sinks and callbacks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from rlsdk.environments.vector.endless import UNHEARD, hint_of_silence
from rlsdk.errors import DivergenceError
from rlsdk.interfaces import Collector, VectorEnv
from rlsdk.records import Cursor, Metrics, Report
from rlsdk.training import plan_errors
from rlsdk.training.collectors import collector_after
from rlsdk.training.no_collector import NoCollector
from rlsdk.training.plan_errors import rounds_of
from rlsdk.training.recovery import recover
from rlsdk.training.run_record import RunRecord


class Run(RunRecord):
    """One call of `learn`. Callbacks receive this object."""

    def advance(self, cursor: Cursor, report: Report, collector: Collector) -> None:
        """Store the report of a round, and the acting state after it.

        Raises:
            DivergenceError: a metric is NaN or infinite.
            PluginError: a metric is not a 0-d tensor.
        """
        self.cursor, self.report = cursor, report
        self.driven.cursor, self.driven.acting = cursor, collector.acting
        self.steps_in_round, self.episodes_in_round = 0, []
        self.episode_statistics.add(report, {} if report.metrics is None else _numbers(report.metrics, report))
        if cursor.env_steps >= self.unheard and not self.episode_statistics.finished_episodes:
            self._hint()

    def _hint(self) -> None:
        """Warn once that the log has no returns, and why."""
        steps = UNHEARD + int(self.cursor.env_steps - self.unheard) // self.agent.context.num_envs
        self.unheard = math.inf
        hint_of_silence(self.driven.env, steps, logs_episodes=self.driven.parts.plan.log_every == "episodes")

    @property
    def rounds_for_log(self) -> int:
        """The count that `log_interval` refers to: finished episodes or rounds, see `Plan.log_every`."""
        statistics = self.episode_statistics
        return statistics.finished_episodes if self.driven.parts.plan.log_every == "episodes" else statistics.reports

    def log(self, extra: dict[str, float] | None = None) -> None:
        """Write the current values to the sinks, with the names in docs/metrics.md."""
        heard = self.logger.sinks or self.handlers["on_log"]  # compute means only if a sink or a callback uses them
        values = {**(self._known_values() if heard else {}), **(extra or {}), **self.logger.name_to_value}
        self.notify("on_log", values)
        self.logger.write(self.num_timesteps, values)
        self.episode_statistics.clear()

    def notify(self, event: str, *details: object) -> None:
        """Call the method `event` of every callback that has it.

        If one returns False, the training stops: immediately after `on_step`, else after this round.
        """
        for handle in self.handlers[event]:
            if says_stop(handle(self, *details)):
                self.stopping = True


class Rounds:
    """The rounds of a run."""

    def __init__(self, run: Run, env: VectorEnv | None) -> None:
        """`env` is the environment that callbacks watch."""
        self.run, self.env = run, env
        self.collector: Collector = NoCollector()

    def played(self) -> bool:
        """Run rounds until the run ends or a callback stops it.

        Returns False if the training diverged and a callback has restored the agent. Then call this method again.

        Raises:
            DivergenceError: the training diverged and no callback has restored the agent.
        """
        try:
            self._play()
        except DivergenceError as error:
            recover(self.run, error)
            return False
        return True

    def _play(self) -> None:
        run, agent, parts = self.run, self.run.driven, self.run.driven.parts
        cursor: Cursor | None = None
        loop: Iterator[object] = iter(())
        while not run.stopping:
            run.notify("on_rollout_start")
            if run.stopping:
                break
            if run.new_episodes:
                run.restart_episodes()
            # create a new loop at the start, after a restart of episodes, and for new settings
            if cursor is not run.cursor or agent.acting is not self.collector.acting or parts is not agent.parts:
                parts = agent.parts
                self.collector = collector_after(self.collector, run, self.env)
                training = run.training(self.collector)
                loop = rounds_of(parts.plan, training, run.cursor, run.agent.spec.id)
            # stays True if the round fails: the environments have then made steps that the cursor does not count
            agent.in_round = True
            round_ = next(loop, run)  # `run` marks the end of the plan, which never yields it
            agent.in_round = False
            if round_ is run:
                break
            cursor, report = _checked_round(round_, run.cursor, run.agent.spec.id)
            run.advance(cursor, report, self.collector)
            if run.rounds_for_log - run.episode_statistics.logged >= run.log_interval:
                run.episode_statistics.logged = run.rounds_for_log
                run.log()
            _notify_of_round(run, report)


def _notify_of_round(run: Run, report: Report) -> None:
    for episode in report.episodes:
        run.notify("on_episode", episode)
    if report.metrics is not None:
        run.notify("on_update", report)
    run.notify("on_report", report)


def _numbers(metrics: Metrics, report: Report) -> dict[str, float]:
    """Return the metrics as numbers, which must be finite."""
    try:
        values = list(metrics.values())
        wrong = any(map(Tensor.dim, values))
        # on the CPU, a call for each is faster than one for all
        numbers = list(map(float, values)) if values[0].is_cpu else torch.stack(values).tolist()
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        wrong, numbers = True, []
    if wrong:
        raise plan_errors.unlike_metrics(metrics)
    if not all(map(math.isfinite, numbers)):
        raise plan_errors.diverged(metrics, report)
    return dict(zip(metrics, numbers, strict=True))


def _checked_round(yielded: object, before: Cursor, algorithm: str) -> tuple[Cursor, Report]:
    """Check what a plan yielded after a round that began at `before`; return (cursor, report).

    Raises:
        PluginError: it is not (Cursor, Report), or counts are lower than before the round.
    """
    if type(yielded) is tuple and len(yielded) == 2:
        cursor, report = yielded
        whole = isinstance(cursor, Cursor) and isinstance(report, Report)
        if whole and cursor.env_steps >= before.env_steps and cursor.updates >= before.updates:
            return cursor, report
    raise plan_errors.wrong_round(yielded, before, algorithm)


def says_stop(answer: object) -> bool:
    """Whether a callback returned False of Python, numpy or torch. None and numbers do not stop training."""
    return answer is False or ("bool" in str(getattr(answer, "dtype", "")) and not answer)
