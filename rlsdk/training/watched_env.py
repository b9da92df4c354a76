"""The training environment of a run whose callbacks receive its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import attrs
import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.interfaces import KeepsInfos, PlaysEpisodes, StepsInPlace, VectorEnv
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space
from rlsdk.training.population_episodes import EpisodeRequest, EpisodeResult
from rlsdk.training.population_steps import steps_of


class Watching(Protocol):
    """A training whose callbacks receive its steps."""

    steps_in_round: int
    episodes_in_round: list[Episode]
    stopping: bool

    def notify(self, event: str, *details: object) -> None:
        """Call the method `event` of the callbacks."""
        ...


@contextmanager
def gathered_infos(env: KeepsInfos | None, wanted: bool) -> Iterator[None]:
    """Make the steps of `env` contain infos inside the `with` block, if `wanted`."""
    if env is None or not wanted:
        yield
        return
    env.keep_infos(True)
    try:
        yield
    finally:
        env.keep_infos(False)


class Watched:
    """Calls callbacks after every step and at the end of collecting. All other calls are passed to the environment."""

    def __init__(self, env: VectorEnv, run: Watching, *, infos: bool) -> None:
        self.env, self.run, self.infos = env, run, infos

    def __getattr__(self, name: str) -> object:
        return getattr(self.env, name)

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def reset(self, seed: int | None = None) -> Observation:
        return self.env.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        step = replace(self.env.step(action), action=action)
        self._notify(step, self.env.num_envs)
        return replace(step, stops=True) if self.run.stopping else step

    def step_in_place(
        self, observation: Observation, action: Tensor, reward: Tensor
    ) -> Callable[[int], EnvStep | None] | None:
        """Prepare steps from `action` [T, B, ..] to `observation` [T + 1, B, ..], with a record of each for callbacks."""
        env = shortcut(self.env, StepsInPlace, "step")
        if env is None or (inner := env.step_in_place(observation, action, reward)) is None:
            return None
        none = torch.zeros(self.num_envs, dtype=torch.bool)
        valid, mask = ~none, observation.action_mask

        def step(t: int) -> EnvStep | None:
            ended = inner(t)
            if ended is None:
                seen = Observation(observation.features[t + 1], none, None if mask is None else mask[t + 1])
                record = EnvStep(seen, reward[t], none, none, valid, action=action[t])
            else:
                record = replace(ended, action=action[t])
            self._notify(record, self.num_envs)
            return replace(record, stops=True) if self.run.stopping else ended

        return step

    def map(
        self,
        work: Callable[[Sequence[object], Sequence[EpisodeRequest]], list[EpisodeResult]],
        requests: Sequence[EpisodeRequest],
    ) -> list[EpisodeResult]:
        """Play requests, and call callbacks for their steps afterwards in the order of the requests.

        As many requests are played at a time as there are environments. Once a callback stops the training, no further
        ones are played.
        """
        player, results = ability(self.env, PlaysEpisodes), list[EpisodeResult]()
        if player is None:
            raise UsageError(f"{type(self.env).__name__} plays no whole episodes, which population methods need")
        for start in range(0, len(requests), self.num_envs):
            noted = [attrs.evolve(t, steps=True, infos=self.infos) for t in requests[start : start + self.num_envs]]
            for result in player.map(work, noted):
                for step in steps_of(result, self.env.observation_space):
                    if self.run.stopping:
                        break
                    self._notify(step, 1)
                results.append(attrs.evolve(result, steps=()))
            if self.run.stopping:
                break
        return results

    def rollout_ended(self) -> None:
        """Notify callbacks that collecting has ended and the update comes next."""
        self.run.notify("on_rollout_end")

    def _notify(self, step: EnvStep, count: int) -> None:
        self.run.steps_in_round += count
        self.run.episodes_in_round.extend(step.episodes)
        self.run.notify("on_step", step)

    def close(self) -> None:
        self.env.close()
