"""What is known of a running training: its counts, its episodes and the values of its logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rlsdk.errors import SettingsError
from rlsdk.records import Cursor, EnvStep, Episode, Report
from rlsdk.sinks import Logger
from rlsdk.training.episode_statistics import EpisodeStatistics
from rlsdk.training.step_values import Locals, step_values
from rlsdk.training.trained_agent import DrivenAgent, MakesCopy, TrainedAgent
from rlsdk.training.worker_metrics import of_workers
from rlsdk.tree import flatten


class Listener(Protocol):
    """What the driver asks a callback; `rlsdk.callbacks.Callback` has methods for all events."""

    def handles(self, event: str) -> bool: ...

    @property
    def needs_infos(self) -> bool: ...
    @property
    def watches_steps(self) -> bool: ...
    @property
    def watches_rollouts(self) -> bool: ...


class Handlers(dict[str, list[Callable[..., object]]]):
    """Event -> the methods of the callbacks that handle it, found when it first happens."""

    def __init__(self, callbacks: Sequence[Listener]) -> None:
        super().__init__()
        self._callbacks = callbacks

    def __missing__(self, event: str) -> list[Callable[..., object]]:
        self[event] = [getattr(callback, event) for callback in self._callbacks if callback.handles(event)]
        return self[event]


class RunRecord:
    """The state of one call of `learn`; `rlsdk.training.run.Run` changes it."""

    def __init__(
        self,
        agent: TrainedAgent,
        driven: DrivenAgent,
        cursor: Cursor,
        total_timesteps: int,
        callbacks: Sequence[Listener],
    ) -> None:
        """`driven`: the insides of `agent`, which the driver writes to."""
        self.agent, self.driven, self.cursor, self.callbacks = agent, driven, cursor, tuple(callbacks)
        self.total_timesteps = total_timesteps
        self.start = self.count
        self.end = self.start + total_timesteps
        self.origin = self.start - agent.num_timesteps
        """Where schedules count progress from: a continued training continues its schedules."""
        self.episode_statistics = EpisodeStatistics(agent.config.stats_window_size, agent.device)
        self.steps_in_round = 0
        self.episodes_in_round: list[Episode] = []
        """Finished since the last round ended, where some callback watches steps."""
        self.stopping = False
        self.new_episodes = False
        """Whether the next round, or the next training, begins new episodes."""
        self.tb_log_name, self.log_interval = agent.spec.id.upper(), 1
        self.handlers = Handlers(self.callbacks)
        self._values: tuple[EnvStep, Locals] | None = None
        self.report: Report | None = None
        """Of the last round; None before the first has ended."""
        self.copies: Callable[[], MakesCopy | None] = lambda: None
        """Gives what makes the agents that act in collectors; None: the environments are in none."""
        self.began = time.perf_counter()

    @property
    def count(self) -> int:
        """What has been done, in the plan's unit: environment steps or updates."""
        return self.cursor.env_steps if self.driven.parts.plan.unit == "steps" else self.cursor.updates

    @property
    def num_timesteps(self) -> int:
        """Environment steps, as the agent counts them; inside a round too where some callback watches steps."""
        return self.count - self.origin + self.steps_in_round

    @property
    def logger(self) -> Logger:
        """The agent's logger."""
        return self.driven.logger

    @property
    def steps_per_second(self) -> float:
        """Environment steps of this run per second; 0 where the clock has not moved yet."""
        elapsed = time.perf_counter() - self.began
        return (self.count - self.start) / elapsed if elapsed > 0.0 else 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last episodes; None before the first has finished."""
        return self.episode_statistics.mean_return

    def values_of(self, step: EnvStep) -> Locals:
        """The `locals` of callbacks with the documented interface after this step; computed once."""
        if self._values is None or self._values[0] is not step:
            before = max(0, self.steps_in_round // self.agent.context.num_envs - 1)  # as documented: without this one
            seconds = time.perf_counter() - self.began
            self._values = step, {**step_values(step, self.agent.decode_action, seconds), "n_steps": before}
        return self._values[1]

    def restart_episodes(self) -> None:
        """End the running episodes as truncations and begin new ones, as a training does that is resumed from a file without
        them."""
        self.new_episodes = False
        self.cursor = self.agent.restart_episodes()

    def write_histograms(self) -> None:
        """Send the policy's parameters to the sinks that draw histograms.

        Raises:
            SettingsError: none does.
        """
        if not self.logger.histograms(self.num_timesteps, flatten(self.agent.get_parameters()["policy"])):
            raise SettingsError("no metric sink draws histograms; set tensorboard_log, which needs rlsdk[tensorboard]")

    def _known_values(self) -> dict[str, float]:
        """Episodes, speed and means of metrics since the last log."""
        return {**self._rollout(), **self._time(), **self._training()}

    def _rollout(self) -> dict[str, float]:
        return {**of_workers(self.driven.env), **self.episode_statistics.episodes()}

    def _time(self) -> dict[str, float]:
        return {
            "time/episodes": self.episode_statistics.finished_episodes,
            "time/fps": self.steps_per_second,
            "time/time_elapsed": time.perf_counter() - self.began,
            "time/total_timesteps": self.num_timesteps,
        }

    def _training(self) -> dict[str, float]:
        means = self.episode_statistics.metrics()
        if not means:
            return {}
        rate = getattr(self.driven.config, "learning_rate", None)
        values = {"train/n_updates": float(self.cursor.updates)}
        if callable(rate):
            done = (self.count - self.origin) / (self.end - self.origin)
            values["train/learning_rate"] = rate(1.0 - min(1.0, done))
        return {**means, **values}
