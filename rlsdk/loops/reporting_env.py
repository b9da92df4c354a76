"""Environments that report every step to an algorithm."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Observation


class ReportingEnv:
    """After every vector step `listener(env_steps, progress)` is called; for what counts in environment steps."""

    def __init__(
        self, env: VectorEnv, steps: int, listener: Callable[[int, float], None], progress_at: Callable[[int], float]
    ) -> None:
        """`steps`: environment steps so far. `progress_at`: environment steps -> progress in [0, 1]."""
        self.env, self.steps, self.listener, self.progress_at = env, steps, listener, progress_at

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    def reset(self, seed: int | None = None) -> Observation:
        return self.env.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        step = self.env.step(action)
        self.steps += self.env.num_envs
        self.listener(self.steps, self.progress_at(self.steps))
        return step

    def close(self) -> None:
        self.env.close()
