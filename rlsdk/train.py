"""The driver: runs a loop, checks what it reports, and tells sinks and callbacks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk.callbacks.callback import Callback
from rlsdk.errors import DivergenceError, SettingsError
from rlsdk.interfaces import VectorEnv
from rlsdk.loops import LOOPS, Cursor
from rlsdk.parts import Parts
from rlsdk.records import EnvStep, Episode, Metrics, Observation, Report
from rlsdk.resumption import StoredCursor, begin
from rlsdk.sinks import MetricSink, draw_histograms
from rlsdk.threads import limited_threads
from rlsdk.tree import flatten, unflatten

if TYPE_CHECKING:
    from rlsdk.agent import Agent


class Run:
    """One call of `learn`, as callbacks see it."""

    def __init__(
        self, agent: Agent, cursor: Cursor, total_timesteps: int, sink: MetricSink, callbacks: Sequence[Callback]
    ) -> None:
        self.agent, self.cursor, self.sink, self.callbacks = agent, cursor, sink, tuple(callbacks)
        self.total_timesteps = total_timesteps
        self.start, self.end = cursor.env_steps, cursor.env_steps + total_timesteps
        self.origin = cursor.env_steps - agent.num_timesteps
        """Where schedules count progress from: a continued training goes on with them, it does not start them again."""
        self.window: deque[Episode] = deque(maxlen=agent.config.stats_window_size)
        self.finished_episodes = self.reports = self.steps_in_round = self.logged = 0
        self.stopping = self.in_round = False
        self.began = time.perf_counter()
        self._sums: dict[str, Tensor] = {}
        self._rounds = 0

    def state_dict(self) -> dict[str, Any]:
        """What the next log depends on: a continued training logs as if it had never stopped."""
        columns = (
            list(zip(*((e.env, e.episode_return, e.length, e.success) for e in self.window), strict=True)) or [()] * 4
        )
        window = {
            "env": torch.tensor(columns[0], dtype=torch.int64),
            "return": torch.tensor(columns[1], dtype=torch.float64),
            "length": torch.tensor(columns[2], dtype=torch.int64),
            "success": torch.tensor([-1 if value is None else int(value) for value in columns[3]], dtype=torch.int8),
        }
        names = ("finished_episodes", "reports", "logged", "_rounds")
        return {
            "window": window,
            "sums": unflatten(self._sums),
            "counts": {name: getattr(self, name) for name in names},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` took out."""
        window = state["window"]
        rows = zip(*(window[name].tolist() for name in ("env", "return", "length", "success")), strict=True)
        self.window.extend(Episode(e, r, n, None if s < 0 else bool(s)) for e, r, n, s in rows)
        device = self.agent.device
        self._sums = {
            name: value.to(device) for name, value in flatten(state["sums"]).items() if isinstance(value, Tensor)
        }
        for name, value in state["counts"].items():
            setattr(self, name, int(value))

    def restart_episodes(self) -> None:
        """End the running episodes as truncations, and begin new ones, as a training resumed from a file does where the
        state of environments cannot be kept."""
        agent = self.agent
        agent._stored_cursor, agent.cursor = StoredCursor.of(self.cursor), None
        self.cursor = agent.cursor = begin(agent, agent._training_env())

    @property
    def num_timesteps(self) -> int:
        """Environment steps, as the agent counts them; inside a round too where some callback watches steps."""
        return self.agent.num_timesteps + self.steps_in_round

    @property
    def steps_per_second(self) -> float:
        """Environment steps of this run per second; 0 where the clock has not moved yet."""
        elapsed = time.perf_counter() - self.began
        return (self.cursor.env_steps - self.start) / elapsed if elapsed > 0.0 else 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the episodes in the window; None before the first has finished."""
        return sum(e.episode_return for e in self.window) / len(self.window) if self.window else None

    def advance(self, cursor: Cursor, report: Report) -> None:
        """Take over what a round of the loop reported.

        Raises:
            DivergenceError: a metric is NaN or infinite.
        """
        self.cursor = self.agent.cursor = cursor
        self.steps_in_round = 0
        self.window.extend(report.episodes)
        self.finished_episodes += len(report.episodes)
        self.reports += 1
        if report.metrics is not None:
            _require_finite(report.metrics, report)
            for name, value in report.metrics.items():
                self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._rounds += 1

    @property
    def rounds_for_log(self) -> int:
        """What `log_interval` counts: finished episodes for off-policy algorithms, rounds for the others."""
        return self.finished_episodes if self.agent.spec.family == "off-policy" else self.reports

    def log(self, extra: dict[str, float] | None = None) -> None:
        """Write what is known now to the sinks, under the names of docs/metrics.md."""
        values = {**self._rollout(), **self._time(), **self._training(), **(extra or {})}
        self.tell("on_log", values)
        self.sink.write(self.num_timesteps, values)
        self._sums, self._rounds = {}, 0

    def tell(self, event: str, *details: Any) -> None:
        """Tell every callback; one that answers False stops the training after this round."""
        for callback in self.callbacks:
            if getattr(callback, event)(self, *details) is False:
                self.stopping = True

    def write_histograms(self) -> None:
        """Send the policy's parameters to the sinks that draw histograms.

        Raises:
            SettingsError: none does.
        """
        if not draw_histograms(self.sink, self.num_timesteps, flatten(self.agent.parts.policy.state_dict())):
            raise SettingsError("no metric sink draws histograms; set tensorboard_log, which needs rlsdk[tensorboard]")

    def _rollout(self) -> dict[str, float]:
        restarts = getattr(self.agent.env, "restarts", 0)
        values = {"rollout/worker_restarts": float(restarts)} if restarts else {}
        return {**values, **self._episodes()}

    def _episodes(self) -> dict[str, float]:
        mean = self.mean_return
        if mean is None:
            return {}
        values = {
            "rollout/ep_rew_mean": mean,
            "rollout/ep_len_mean": sum(e.length for e in self.window) / len(self.window),
        }
        successes = [e.success for e in self.window if e.success is not None]
        return {**values, "rollout/success_rate": sum(successes) / len(successes)} if successes else values

    def _time(self) -> dict[str, float]:
        return {
            "time/episodes": self.finished_episodes,
            "time/fps": self.steps_per_second,
            "time/time_elapsed": time.perf_counter() - self.began,
            "time/total_timesteps": self.num_timesteps,
        }

    def _training(self) -> dict[str, float]:
        if not self._rounds:
            return {}
        rate = getattr(self.agent.config, "learning_rate", None)
        values = {"train/n_updates": float(self.cursor.updates)}
        if callable(rate):
            done = (self.cursor.env_steps - self.origin) / (self.end - self.origin)
            values["train/learning_rate"] = rate(1.0 - min(1.0, done))
        means = torch.stack([value / self._rounds for value in self._sums.values()]).tolist()
        return {**dict(zip(self._sums, means, strict=True)), **values}


def train(run: Run, env: VectorEnv, parts: Parts, *, log_every: int, threads: int | None) -> None:
    """Drive the loop of the agent's family to the end of `run`, or until a callback says stop.

    Args:
        run: counts, sinks and callbacks.
        env: the training environment, on the agent's device.
        parts: the assembled agent.
        log_every: finished episodes between two logs, or rollouts for on-policy algorithms.
        threads: threads of torch and numpy while training; None leaves their settings alone.
    """
    plan = LOOPS[type(parts.plan)]
    watched = Watched(env, run) if any(callback.watches_steps for callback in run.callbacks) else env
    with limited_threads(threads), torch.inference_mode(False), torch.enable_grad():
        run.tell("on_training_start")
        try:
            cursor: Cursor | None = None
            loop: Iterator[tuple[Cursor, Report]] = iter(())
            while not run.stopping:
                run.tell("on_rollout_start")
                if cursor is not run.cursor:  # at the start, and where episodes were begun anew
                    loop = plan(watched, parts, run.cursor, run.agent.streams, start=run.origin, end=run.end)
                run.in_round, round_ = True, next(loop, None)
                run.in_round = False
                if round_ is None:
                    break
                cursor, report = round_
                run.advance(cursor, report)
                if run.rounds_for_log - run.logged >= log_every:
                    run.logged = run.rounds_for_log
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


class Watched:
    """The training environment, telling callbacks of every step."""

    def __init__(self, env: VectorEnv, run: Run) -> None:
        self.env, self.run = env, run

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    def reset(self, seed: int | None = None) -> Observation:
        return self.env.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        step = self.env.step(action)
        self.run.steps_in_round += self.env.num_envs
        self.run.tell("on_step", step)
        return step

    def close(self) -> None:
        self.env.close()


def _require_finite(metrics: Metrics, report: Report) -> None:
    total = float(torch.stack(list(metrics.values())).sum())
    if math.isfinite(total):
        return
    wrong = {name: float(value) for name, value in metrics.items() if not math.isfinite(float(value))}
    raise DivergenceError(
        f"training diverged at update {report.updates} (environment step {report.env_steps}): {wrong};"
        " the environment's own numbers were finite, so lower learning_rate, scale the rewards, or check custom networks"
    )
