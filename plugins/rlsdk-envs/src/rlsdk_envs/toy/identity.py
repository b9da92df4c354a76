"""Identity tasks for every action space: the best action equals the observation. Every algorithm must be able to learn them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Step = tuple[object, float, bool, bool, dict[str, object]]


def number(generator: np.random.Generator, dim: int) -> int:
    """A random element of Discrete(dim)."""
    return int(generator.integers(dim))


def pair(generator: np.random.Generator, dim: int) -> NDArray[np.int64]:
    """A random element of MultiDiscrete([dim, dim])."""
    return generator.integers(dim, size=2)


def bits(generator: np.random.Generator, dim: int) -> NDArray[np.int8]:
    """A random element of MultiBinary(dim)."""
    return generator.integers(2, size=dim).astype(np.int8)


class IdentityTask(gymnasium.Env[object, object]):
    """The base class of identity tasks. Each observation is a random element of the space.

    Episodes are truncated after `episode_length` steps.
    """

    def __init__(self, space: gymnasium.Space[Any], episode_length: int) -> None:
        self.observation_space = self.action_space = space
        self.episode_length, self._steps = episode_length, 0
        self.target: object = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: object) -> Step:
        reward = self.reward(action)
        self._steps += 1
        return self._next(), reward, False, self._steps >= self.episode_length, {}

    def render(self, mode: str = "human") -> None:
        """Do nothing. The method exists so that loops that call `render` work."""

    def _next(self) -> object:
        self.target = self.draw()
        return self.target

    def draw(self) -> object:
        """A random element of the space."""
        raise NotImplementedError

    def reward(self, action: object) -> float:
        """The reward: 1 if the action equals the observation, else 0."""
        if isinstance(action, int | np.integer):
            return float(action == self.target)
        return float(np.array_equal(np.asarray(action), np.asarray(self.target)))


class IdentityEnv(IdentityTask):
    """The identity task in Discrete(dim): the reward is 1 if the action equals the observation, else 0."""

    def __init__(self, dim: int = 2, episode_length: int = 100) -> None:
        super().__init__(spaces.Discrete(dim), episode_length)
        self.dim = dim

    def draw(self) -> object:
        return number(self.np_random, self.dim)


class IdentityEnvMultiDiscrete(IdentityTask):
    """The identity task with two discrete values: the reward is 1 if both are right, else 0."""

    def __init__(self, dim: int = 2, episode_length: int = 100) -> None:
        super().__init__(spaces.MultiDiscrete([dim, dim]), episode_length)
        self.dim = dim

    def draw(self) -> object:
        return pair(self.np_random, self.dim)


class IdentityEnvMultiBinary(IdentityTask):
    """The identity task with `dim` bits: the reward is 1 if all bits are right, else 0."""

    def __init__(self, dim: int = 2, episode_length: int = 100) -> None:
        super().__init__(spaces.MultiBinary(dim), episode_length)
        self.dim = dim

    def draw(self) -> object:
        return bits(self.np_random, self.dim)


class IdentityEnvBox(IdentityTask):
    """The identity task with a number between `low` and `high`: the reward is minus the squared error of the action."""

    def __init__(self, low: float = -1.0, high: float = 1.0, episode_length: int = 100) -> None:
        super().__init__(spaces.Box(low, high, (1,), np.float32), episode_length)
        self.low, self.high = low, high

    def draw(self) -> object:
        return self.np_random.uniform(self.low, self.high, size=1).astype(np.float32)

    def reward(self, action: object) -> float:
        return -float(np.square(np.asarray(action) - self.target).sum())
