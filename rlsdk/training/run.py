"""The state of a running training: its counts, its episodes and the values for its logs."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import quote, unquote

import torch
from torch import Tensor

from rlsdk.environments import ConnectedEnv
from rlsdk.environments.vector.faults import UNHEARD, hint_of_silence
from rlsdk.errors import DivergenceError, SettingsError
from rlsdk.interfaces import Collector, Training, VectorEnv
from rlsdk.interfaces.abilities import unlike_metrics
from rlsdk.records import Cursor, Episode, Metrics, Report
from rlsdk.runtime.process import count_in
from rlsdk.sinks import Logger
from rlsdk.training.collector import NoCollector
from rlsdk.training.trained_agent import DrivenAgent, TrainedAgent
from rlsdk.tree import flatten


class CallbackLike(Protocol):
    """The members of a callback that the driver uses; `rlsdk.callbacks.Callback` also has a method for every event."""

    def handles(self, event: str) -> bool: ...

    @property
    def needs_infos(self) -> bool: ...
    @property
    def watches_steps(self) -> bool: ...
    @property
    def watches_rollouts(self) -> bool: ...


class Handlers(dict[str, list[Callable[..., object]]]):
    """Event -> the methods of the callbacks that handle it. An entry is created when its event first happens."""

    def __init__(self, callbacks: Sequence[CallbackLike]) -> None:
        super().__init__()
        self._callbacks = callbacks

    def __missing__(self, event: str) -> list[Callable[..., object]]:
        self[event] = [getattr(callback, event) for callback in self._callbacks if callback.handles(event)]
        return self[event]


def says_stop(answer: object) -> bool:
    """Whether a callback returned False of Python, numpy or torch. None and numbers do not stop training."""
    return answer is False or ("bool" in str(getattr(answer, "dtype", "")) and not answer)


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
        raise unlike_metrics(metrics)
    if not all(map(math.isfinite, numbers)):
        raise diverged(metrics, report)
    return dict(zip(metrics, numbers, strict=True))


def diverged(metrics: Metrics, report: Report) -> DivergenceError:
    """The error for metrics, each float [], of which at least one is NaN or infinite."""
    wrong = {name: float(value) for name, value in metrics.items() if not math.isfinite(float(value))}
    return DivergenceError(
        f"training diverged at update {report.updates} (environment step {report.env_steps}): {wrong};"
        " the environment's own numbers were finite, so lower learning_rate, scale the rewards, or check custom networks"
    )


class Run:
    """One call of `learn`: its counts, episodes and values for logs. Callbacks receive this object."""

    def __init__(
        self,
        agent: TrainedAgent,
        driven: DrivenAgent,
        cursor: Cursor,
        total_timesteps: int,
        callbacks: Sequence[CallbackLike],
        schedule_until: int | None = None,
    ) -> None:
        """`agent` is the `Agent`, and `driven` its `AssembledAgent`. `schedule_until` is the agent's count at which schedules
        end; None: at the end of the run."""
        self.agent, self.driven, self.cursor, self.callbacks = agent, driven, cursor, tuple(callbacks)
        self.total_timesteps = total_timesteps
        # counts of this run; the agent's own continue from earlier runs
        self.start = self.count
        self.end = self.start + total_timesteps
        self.origin = self.start - agent.num_timesteps
        """The count at which the progress of schedules is 0. A continued training continues its schedules."""
        self.schedule_end = self.end if schedule_until is None else self.origin + schedule_until
        """The count at which the progress of schedules is 1."""
        self.exact = False
        """Whether the last round is cut, so that the run ends exactly at `end`."""
        self.episode_statistics = EpisodeStatistics(agent.config.stats_window_size)
        self.steps_in_round = 0
        self.episodes_in_round: list[Episode] = []
        """The episodes finished since the last round ended; filled only if a callback watches steps."""
        self.unheard: float = cursor.env_steps + UNHEARD * agent.context.num_envs
        """The environment steps at which a run gives a hint if no episode has ended."""
        self.collector: Collector = NoCollector()
        """The collector of the last round."""
        self.stopping = False
        self.new_episodes = False
        """Whether new episodes begin in the next round or the next training."""
        # the documented name of a run in the logs
        self.tb_log_name, self.log_interval = agent.spec.id.upper(), 1
        self.handlers = Handlers(self.callbacks)
        self.report: Report | None = None
        """The report of the last round; None before the first round has ended."""
        self.copies: Callable[[], Callable[[VectorEnv], DrivenAgent]]
        """Returns a function that makes a copy of the agent for acting in other environments. It can be pickled."""
        self.began = time.perf_counter()

    def advance(self, cursor: Cursor, report: Report) -> None:
        """Store the report of a round, and the acting state after it.

        Raises:
            DivergenceError: a metric is NaN or infinite.
            PluginError: a metric is not a 0-d tensor.
        """
        # counted before the metrics are read: the steps were made, even if the training has diverged in them
        self.cursor, self.report = cursor, report
        self.driven.cursor, self.driven.acting = cursor, self.collector.acting
        self.steps_in_round, self.episodes_in_round = 0, []
        self.episode_statistics.add(report, {} if report.metrics is None else _numbers(report.metrics, report))
        if cursor.env_steps >= self.unheard and not self.episode_statistics.finished_episodes:
            # no episode has ended, so the log has no returns: explain that once
            steps = UNHEARD + int(cursor.env_steps - self.unheard) // self.agent.context.num_envs
            self.unheard = math.inf
            hint_of_silence(self.driven.env, steps, logs_episodes=self.driven.parts.plan.log_every == "episodes")

    def log(self, extra: dict[str, float] | None = None) -> None:
        """Write the current values to the sinks, with the names in docs/metrics.md."""
        logger = self.driven.logger
        heard = logger.sinks or self.handlers["on_log"]  # compute means only if a sink or a callback uses them
        values = {**(self._known_values() if heard else {}), **(extra or {}), **logger.name_to_value}
        self.notify("on_log", values)
        logger.write(self.num_timesteps, values)
        self.episode_statistics.clear()

    def notify(self, event: str, *details: object) -> None:
        """Call the method `event` of every callback that has it.

        If one returns False, the training stops: immediately after `on_step`, else after this round.
        """
        for handle in self.handlers[event]:
            answer = handle(self, *details)
            # the rest are called too: each sees every event, independent of another one's answer
            if answer is not None and says_stop(answer):
                self.stopping = True

    @property
    def count(self) -> int:
        """The number of environment steps or updates so far, whichever is the plan's unit."""
        return self.cursor.env_steps if self.driven.parts.plan.unit == "steps" else self.cursor.updates

    @property
    def num_timesteps(self) -> int:
        """The agent's count of environment steps (of updates, if these are the plan's unit).

        It also increases inside a round if a callback watches steps.
        """
        return self.count - self.origin + self.steps_in_round

    @property
    def progress_remaining(self) -> float:
        """The argument of schedules after the last round: 1 at their start, 0 at their end."""
        return 1.0 - self.training(self.collector).progress(self.count)

    def training(self, collector: Collector) -> Training:
        """The argument of the plan's `rounds`."""
        agent = self.driven
        counts = self.origin, self.end
        return Training(
            collector, agent.parts, agent.streams, *counts, agent.context.device, self.schedule_end, self.exact
        )

    @property
    def logger(self) -> Logger:
        """The agent's logger."""
        return self.driven.logger

    @property
    def steps_per_second(self) -> float:
        """Environment steps (or updates, by the plan's unit) of this run per second; 0 if no time has passed."""
        elapsed = time.perf_counter() - self.began
        return (self.count - self.start) / elapsed if elapsed > 0.0 else 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last episodes; None before the first episode has finished."""
        return self.episode_statistics.mean_return

    def restart_episodes(self) -> None:
        """End the running episodes as truncations and begin new ones.

        A training that is resumed from a file without environment states does the same.
        """
        self.new_episodes = False
        self.cursor = self.agent.restart_episodes()

    def write_histograms(self) -> None:
        """Send the policy's parameters to the sinks that draw histograms.

        Raises:
            SettingsError: no sink draws histograms.
        """
        if not self.logger.histograms(self.num_timesteps, flatten(self.agent.get_parameters()["policy"])):
            raise SettingsError("no logger draws histograms; set tensorboard_log, which needs rlsdk[tensorboard]")

    def _known_values(self) -> dict[str, float]:
        """The values for a log: episodes, speed, and the means of metrics since the last log."""
        statistics = self.episode_statistics
        values = {
            **of_workers(self.driven.env),
            **statistics.episodes(),
            "time/episodes": statistics.finished_episodes,
            "time/fps": self.steps_per_second,
            "time/time_elapsed": time.perf_counter() - self.began,
            "time/total_timesteps": self.num_timesteps,
        }
        means = statistics.metrics()
        if not means:
            return values
        values |= {**means, "train/n_updates": float(self.cursor.updates)}
        if callable(rate := getattr(self.driven.config, "learning_rate", None)):
            values["train/learning_rate"] = rate(self.progress_remaining)
        return values


def of_workers(env: ConnectedEnv | None) -> dict[str, float]:
    """Return `rollout/worker_restarts`, the number of replaced workers, and `rollout/lag`, the age of the acting policy.

    A metric without a value is left out.
    """
    if env is None:
        return {}
    restarts = {"rollout/worker_restarts": float(env.restarts)} if env.restarts else {}
    return restarts if env.lag is None else {**restarts, "rollout/lag": float(env.lag)}


COUNTS = ("finished_episodes", "reports", "logged", "updates")


class EpisodeStatistics:
    """Counts and sums for logs. Their state is saved in files, so a continued training logs as if it had not stopped."""

    def __init__(self, window: int) -> None:
        # a window of any size is accepted, a deque only takes a C integer
        self.window: deque[Episode] = deque(maxlen=min(window, sys.maxsize))
        self.finished_episodes = self.reports = self.logged = self.updates = 0
        self.sums: dict[str, float] = {}

    def add(self, report: Report, metrics: Mapping[str, float]) -> None:
        """Add the report of one round, with its metrics as numbers; empty if it has none."""
        self.window.extend(report.episodes)
        self.finished_episodes += len(report.episodes)
        self.reports += 1
        self.updates += report.metrics is not None
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def clear(self) -> None:
        """Reset the metrics. Episodes stay in the window until newer ones replace them."""
        self.sums, self.updates = {}, 0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the episodes in the window; None before the first has finished."""
        return sum(e.episode_return for e in self.window) / len(self.window) if self.window else None

    def episodes(self) -> dict[str, float]:
        """The means over the window of episodes, with the names in docs/metrics.md."""
        if self.mean_return is None:
            return {}
        length = sum(e.length for e in self.window) / len(self.window)
        values = {"rollout/ep_rew_mean": self.mean_return, "rollout/ep_len_mean": length}
        successes = [e.success for e in self.window if e.success is not None]
        return {**values, "rollout/success_rate": sum(successes) / len(successes)} if successes else values

    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the rounds with updates since the last log."""
        return {name: value / self.updates for name, value in self.sums.items()} if self.updates else {}

    def state_dict(self) -> dict[str, object]:
        # one table of numbers, because files hold tensors; -1 stands for an unknown success
        rows = [(e.env, e.episode_return, e.length, -1 if e.success is None else int(e.success)) for e in self.window]
        window = torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)
        # a file takes '/' for a table, and no name may be a table and a value: `loss` and `loss/actor` are both metrics
        sums = {quote(name, safe=""): torch.tensor(value, dtype=torch.float64) for name, value in self.sums.items()}
        return {
            "window": window,
            "sums": sums,
            "counts": {name: getattr(self, name) for name in COUNTS},
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state. Raises KeyError or ValueError if `state` is not the result of `state_dict`."""
        rows, nested, stored = state["window"], state["sums"], state["counts"]
        if not isinstance(rows, Tensor) or not isinstance(nested, Mapping) or not isinstance(stored, Mapping):
            raise ValueError("the log is not a table of episodes, sums and counts")
        sums = flatten(nested)
        if rows.dim() != 2 or rows.shape[1] != 4 or not bool(rows.isfinite().all()) or bool((rows[:, 2] < 0).any()):
            raise ValueError(f"the log's episodes of shape {tuple(rows.shape)} are none")
        if not all(
            isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point() for value in sums.values()
        ):
            raise ValueError("the log's sums are not numbers")
        counts = {name: count_in(stored, name) for name in COUNTS}
        if counts["updates"] and not sums:
            raise ValueError("the log counts updates without metrics")
        for env, total, length, success in rows.tolist():
            self.window.append(Episode(int(env), total, int(length), None if success < 0 else bool(success)))
        self.sums = {unquote(name): value.item() for name, value in sums.items() if isinstance(value, Tensor)}
        for name, count in counts.items():
            setattr(self, name, count)
