"""The driver: runs a loop, checks what it reports, and notifies sinks and callbacks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from rlsdk.errors import PluginError
from rlsdk.interfaces import Collector, Parts, Training, VectorEnv
from rlsdk.records import Cursor, Metrics, Report
from rlsdk.runtime.threads import affordable, limited_threads
from rlsdk.training import plan_errors
from rlsdk.training.collectors import collector_after, left
from rlsdk.training.no_collector import NoCollector
from rlsdk.training.plan_errors import rounds_of
from rlsdk.training.run_record import RunRecord
from rlsdk.training.watched_env import Watched, gathered_infos


class Run(RunRecord):
    """One call of `learn`, as callbacks see it."""

    def advance(self, cursor: Cursor, report: Report, collector: Collector) -> None:
        """Take over the report of a round, and the acting state after it.

        Raises:
            DivergenceError: a metric is NaN or infinite.
            PluginError: the metrics are something else than 0-d tensors.
        """
        self.cursor, self.report = cursor, report
        self.driven.cursor, self.driven.acting = cursor, collector.acting
        self.steps_in_round = 0
        if report.metrics is not None:
            _require_finite(report.metrics, report)
        self.episode_statistics.add(report)

    @property
    def rounds_for_log(self) -> int:
        """What `log_interval` counts: finished episodes or rounds, see `Plan.log_every`."""
        statistics = self.episode_statistics
        return statistics.finished_episodes if self.driven.parts.plan.log_every == "episodes" else statistics.reports

    def log(self, extra: dict[str, float] | None = None) -> None:
        """Write the current values to the sinks, under the names of docs/metrics.md."""
        heard = self.logger.sinks or self.handlers["on_log"]  # means are only found for somebody
        values = {**(self._known_values() if heard else {}), **(extra or {}), **self.logger.name_to_value}
        self.notify("on_log", values)
        self.logger.write(self.num_timesteps, values)
        self.episode_statistics.clear()

    def notify(self, event: str, *details: object) -> None:
        """Notify every callback; one that returns False stops the training: at once after `on_step`, else after this round."""
        for handle in self.handlers[event]:
            if says_stop(handle(self, *details)):
                self.stopping = True


def train(run: Run, env: VectorEnv | None, parts: Parts, *, log_every: int, threads: int | None) -> None:
    """Drive the agent's plan to the end of `run`, or until a callback stops it.

    Args:
        run: counts, sinks and callbacks.
        env: the training environment, on the agent's device; None for a plan that needs none.
        parts: the assembled agent.
        log_every: finished episodes or rounds between two logs, see `Plan.log_every`.
        threads: threads of torch and numpy while training; None leaves their settings alone.
    """
    agent = run.driven
    run.log_interval = log_every
    watching = [callback for callback in run.callbacks if callback.watches_steps or callback.watches_rollouts]
    infos = any(callback.needs_infos for callback in watching)
    watched = env if env is None or not watching else Watched(env, run, infos=infos)
    collector: Collector = NoCollector()
    with (
        gathered_infos(agent.env, infos),
        limited_threads(affordable(threads)),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        run.notify("on_training_start")
        try:
            cursor: Cursor | None = None
            loop: Iterator[object] = iter(())
            while not run.stopping:
                run.notify("on_rollout_start")
                if run.stopping:
                    break
                # a new loop at the start, after a restart of episodes, and for new settings
                if cursor is not run.cursor or agent.acting is not collector.acting or parts is not agent.parts:
                    parts = agent.parts
                    collector = collector_after(collector, run, watched)
                    training = Training(collector, parts, agent.streams, run.origin, run.end, agent.context.device)
                    loop = rounds_of(parts.plan, training, run.cursor, run.agent.spec.id)
                # it stays so when the round fails: environments are further than the cursor then
                agent.in_round = True
                round_ = next(loop, run)  # a plan yields no run
                agent.in_round = False
                if round_ is run:
                    break
                cursor, report = _checked_round(round_, run.cursor, run.agent.spec.id)
                run.advance(cursor, report, collector)
                if run.rounds_for_log - run.episode_statistics.logged >= log_every:
                    run.episode_statistics.logged = run.rounds_for_log
                    run.log()
                _notify_of_round(run, report)
        except PluginError as error:
            raise plan_errors.of_algorithm(error, run.agent.spec.id) from None
        finally:
            # rounds that were begun for later are done again, with the same weights, when training continues
            agent.in_round = agent.in_round or not left(collector)
            run.notify("on_training_end")


def _notify_of_round(run: Run, report: Report) -> None:
    for episode in report.episodes:
        run.notify("on_episode", episode)
    if report.metrics is not None:
        run.notify("on_update", report)
    run.notify("on_report", report)


def _require_finite(metrics: Metrics, report: Report) -> None:
    try:
        values = torch.stack(list(metrics.values()))
    except (AttributeError, TypeError, RuntimeError):
        raise plan_errors.unlike_metrics(metrics) from None
    if values.dim() != 1:
        raise plan_errors.unlike_metrics(metrics)
    if not math.isfinite(float(values.sum())):
        raise plan_errors.diverged(metrics, report)


def _checked_round(yielded: object, before: Cursor, algorithm: str) -> tuple[Cursor, Report]:
    """What a plan yielded after a round that began at `before`.

    Raises:
        PluginError: it is something else, or counts are lower than before the round.
    """
    if type(yielded) is tuple and len(yielded) == 2:
        cursor, report = yielded
        whole = isinstance(cursor, Cursor) and isinstance(report, Report)
        if whole and cursor.env_steps >= before.env_steps and cursor.updates >= before.updates:
            return cursor, report
    raise plan_errors.wrong_round(yielded, before, algorithm)


def says_stop(answer: object) -> bool:
    """Whether a callback returned False, of Python, numpy or torch; None and numbers do not stop training."""
    return answer is False or ("bool" in str(getattr(answer, "dtype", "")) and not answer)
