"""The driver: runs a loop, checks what it reports, and tells sinks and callbacks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk.callbacks.callback import Callback, says_stop
from rlsdk.callbacks.step_values import step_values
from rlsdk.callbacks.watched import Watched, gathered_infos
from rlsdk.errors import DivergenceError, PluginError, SettingsError
from rlsdk.interfaces import VectorEnv
from rlsdk.loops import LOOPS, Cursor
from rlsdk.parts import Parts
from rlsdk.records import EnvStep, Metrics, Report
from rlsdk.sinks import Logger
from rlsdk.tally import Tally
from rlsdk.threads import affordable, limited_threads
from rlsdk.tree import flatten

if TYPE_CHECKING:
    from rlsdk.agent import Agent


class Run:
    """One call of `learn`, as callbacks see it."""

    def __init__(self, agent: Agent, cursor: Cursor, total_timesteps: int, callbacks: Sequence[Callback]) -> None:
        self.agent, self.cursor, self.callbacks = agent, cursor, tuple(callbacks)
        self.total_timesteps = total_timesteps
        self.start, self.end = cursor.env_steps, cursor.env_steps + total_timesteps
        self.origin = cursor.env_steps - agent.num_timesteps
        """Where schedules count progress from: a continued training goes on with them, it does not start them again."""
        self.tally = Tally(agent.config.stats_window_size, agent.device)
        self.steps_in_round = 0
        self.stopping = False
        self.tb_log_name, self.log_interval = agent.spec.id.upper(), 1
        self._values: tuple[EnvStep, dict[str, Any]] | None = None
        self.report: Report | None = None
        """Of the last round; None before the first has ended."""
        self.began = time.perf_counter()

    @property
    def num_timesteps(self) -> int:
        """Environment steps, as the agent counts them; inside a round too where some callback watches steps."""
        return self.agent.num_timesteps

    @property
    def logger(self) -> Logger:
        """The agent's logger."""
        return self.agent.logger

    @property
    def steps_per_second(self) -> float:
        """Environment steps of this run per second; 0 where the clock has not moved yet."""
        elapsed = time.perf_counter() - self.began
        return (self.cursor.env_steps - self.start) / elapsed if elapsed > 0.0 else 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last episodes; None before the first has finished."""
        return self.tally.mean_return

    def values_of(self, step: EnvStep) -> dict[str, Any]:
        """The `locals` of callbacks with the documented interface after this step; computed once."""
        if self._values is None or self._values[0] is not step:
            done = self.steps_in_round // self.agent.facts.num_envs
            self._values = step, {**step_values(step, self.agent.decode_action), "n_steps": done}
        return self._values[1]

    def advance(self, cursor: Cursor, report: Report) -> None:
        """Take over what a round of the loop reported.

        Raises:
            DivergenceError: a metric is NaN or infinite.
            PluginError: the metrics are something else than 0-d tensors.
        """
        self.cursor, self.report = cursor, report
        vars(self.agent)["cursor"] = cursor
        self.steps_in_round = 0
        if report.metrics is not None:
            _require_finite(report.metrics, report)
        self.tally.add(report)

    @property
    def rounds_for_log(self) -> int:
        """What `log_interval` counts: finished episodes for off-policy algorithms, rounds for the others."""
        return self.tally.finished_episodes if self.agent.spec.family == "off-policy" else self.tally.reports

    def log(self, extra: dict[str, float] | None = None) -> None:
        """Write what is known now to the sinks, under the names of docs/metrics.md."""
        known = {**self._rollout(), **self._time(), **self._training(), **(extra or {})}
        values = {**known, **self.logger.name_to_value}
        self.tell("on_log", values)
        self.logger.write(self.num_timesteps, values)
        self.tally.clear()

    def tell(self, event: str, *details: Any) -> None:
        """Notify every callback; one that returns False stops the training: at once after `on_step`, else after this round."""
        for callback in self.callbacks:
            if says_stop(getattr(callback, event)(self, *details)):
                self.stopping = True

    def write_histograms(self) -> None:
        """Send the policy's parameters to the sinks that draw histograms.

        Raises:
            SettingsError: none does.
        """
        if not self.logger.histograms(self.num_timesteps, flatten(self.agent.parts.policy.state_dict())):
            raise SettingsError("no metric sink draws histograms; set tensorboard_log, which needs rlsdk[tensorboard]")

    def _rollout(self) -> dict[str, float]:
        restarts = getattr(self.agent.env, "restarts", 0)
        values = {"rollout/worker_restarts": float(restarts)} if restarts else {}
        return {**values, **self.tally.episodes()}

    def _time(self) -> dict[str, float]:
        return {
            "time/episodes": self.tally.finished_episodes,
            "time/fps": self.steps_per_second,
            "time/time_elapsed": time.perf_counter() - self.began,
            "time/total_timesteps": self.num_timesteps,
        }

    def _training(self) -> dict[str, float]:
        means = self.tally.metrics()
        if not means:
            return {}
        rate = getattr(self.agent.config, "learning_rate", None)
        values = {"train/n_updates": float(self.cursor.updates)}
        if callable(rate):
            done = (self.cursor.env_steps - self.origin) / (self.end - self.origin)
            values["train/learning_rate"] = rate(1.0 - min(1.0, done))
        return {**means, **values}


def train(run: Run, env: VectorEnv, parts: Parts, *, log_every: int, threads: int | None) -> None:
    """Drive the loop of the agent's family to the end of `run`, or until a callback says stop.

    Args:
        run: counts, sinks and callbacks.
        env: the training environment, on the agent's device.
        parts: the assembled agent.
        log_every: finished episodes between two logs, or rollouts for on-policy algorithms.
        threads: threads of torch and numpy while training; None leaves their settings alone.
    """
    plan, state = LOOPS[type(parts.plan)], vars(run.agent)  # written every round, past the checks of assignments
    run.log_interval = log_every
    watching = [callback for callback in run.callbacks if callback.watches_steps or callback.watches_rollouts]
    infos = any(callback.needs_infos for callback in watching)
    watched = Watched(env, run, infos=infos) if watching else env
    with (
        gathered_infos(run.agent.env, infos),
        limited_threads(affordable(threads)),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        run.tell("on_training_start")
        try:
            cursor: Cursor | None = None
            loop: Iterator[tuple[Cursor, Report]] = iter(())
            while not run.stopping:
                run.tell("on_rollout_start")
                if run.stopping:
                    break
                # a new loop at the start, after a restart of episodes, and for new settings
                if cursor is not run.cursor or parts is not run.agent.parts:
                    parts = run.agent.parts
                    loop = plan(watched, parts, run.cursor, run.agent.streams, start=run.origin, end=run.end)
                # it stays so when the round fails: environments are further than the cursor then
                state["in_round"] = True
                round_ = next(loop, None)
                state["in_round"] = False
                if round_ is None:
                    break
                cursor, report = round_
                run.advance(cursor, report)
                if run.rounds_for_log - run.tally.logged >= log_every:
                    run.tally.logged = run.rounds_for_log
                    run.log()
                _tell_of_round(run, report)
        finally:
            run.tell("on_training_end")


def _tell_of_round(run: Run, report: Report) -> None:
    for episode in report.episodes:
        run.tell("on_episode", episode)
    if report.metrics is not None:
        run.tell("on_update", report)
    run.tell("on_report", report)


def _require_finite(metrics: Metrics, report: Report) -> None:
    try:
        values = torch.stack(list(metrics.values()))
    except (AttributeError, TypeError, RuntimeError):
        raise PluginError(_unlike_metrics(metrics)) from None
    if values.dim() != 1:
        raise PluginError(_unlike_metrics(metrics))
    if math.isfinite(float(values.sum())):
        return
    wrong = {name: float(value) for name, value in metrics.items() if not math.isfinite(float(value))}
    raise DivergenceError(
        f"training diverged at update {report.updates} (environment step {report.env_steps}): {wrong};"
        " the environment's own numbers were finite, so lower learning_rate, scale the rewards, or check custom networks"
    )


def _unlike_metrics(metrics: object) -> str:
    """What is wrong with what `update` returned."""
    wanted = "update() must return metrics: a mapping from names to 0-d tensors, such as {'train/loss': loss.detach()}"
    if not isinstance(metrics, Mapping):
        return f"{wanted}; it returned {type(metrics).__name__}"
    if not metrics:
        return f"{wanted}; it returned none, so nobody would see whether training diverges"
    wrong = {n: v for n, v in metrics.items() if not isinstance(v, Tensor) or v.dim()}
    kinds = [
        f"{n} is a {type(v).__name__}" + (f" {list(v.shape)}" if isinstance(v, Tensor) else "")
        for n, v in wrong.items()
    ]
    return f"{wanted}; {', '.join(kinds) or 'they lie on several devices or have several dtypes'}"
