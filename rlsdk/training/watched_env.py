"""The training environment of a run whose callbacks follow its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import attrs
from torch import Tensor

from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space
from rlsdk.training.population_episodes import EpisodeRequest, EpisodeResult
from rlsdk.training.population_steps import steps_of


class Watching(Protocol):
    """A training whose callbacks follow its steps."""

    steps_in_round: int
    stopping: bool

    def notify(self, event: str, *details: object) -> None:
        """Notify the callbacks."""
        ...


@contextmanager
def gathered_infos(env: Any, wanted: bool) -> Iterator[None]:
    """Have the steps of `env` carry infos inside the block, where it can."""
    keep = getattr(env, "keep_infos", None) if wanted else None
    if keep is None:
        yield
        return
    keep(True)
    try:
        yield
    finally:
        keep(False)


class Watched:
    """Notifies callbacks of every step and of the end of collecting; all else is passed to the environment."""

    def __init__(self, env: VectorEnv, run: Watching, *, infos: bool) -> None:
        self.env, self.run, self.infos = env, run, infos

    def __getattr__(self, name: str) -> Any:
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

    def map(
        self, work: Callable[[Any, Any], list[EpisodeResult]], requests: Sequence[EpisodeRequest]
    ) -> list[EpisodeResult]:
        """Play requests, as many at a time as there are environments, and notify callbacks of their steps afterwards, in the
        order of requests: the same wherever they are played. Once a callback stops the training no further ones are played.
        """
        env: Any = self.env
        results: list[EpisodeResult] = []
        for start in range(0, len(requests), self.num_envs):
            noted = [attrs.evolve(t, steps=True, infos=self.infos) for t in requests[start : start + self.num_envs]]
            for result in env.map(work, noted):
                for step in steps_of(result, env.observation_space):
                    if self.run.stopping:
                        break
                    self._notify(step, 1)
                results.append(attrs.evolve(result, steps=()))
            if self.run.stopping:
                break
        return results

    def rollout_ended(self) -> None:
        """Collecting is over, the update comes next."""
        self.run.notify("on_rollout_end")

    def _notify(self, step: EnvStep, count: int) -> None:
        self.run.steps_in_round += count
        self.run.notify("on_step", step)

    def close(self) -> None:
        self.env.close()
