"""Small environments with known answers, for tests and documentation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class IdentityEnvBox(gymnasium.Env[Any, Any]):
    """The best action is the observation itself; the reward is minus the squared distance to it."""

    def __init__(self, low: float = -1.0, high: float = 1.0, episode_length: int = 100) -> None:
        self.observation_space = spaces.Box(low, high, (1,), np.float32)
        self.action_space = spaces.Box(low, high, (1,), np.float32)
        self.episode_length, self._steps = episode_length, 0
        self._target = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._draw(), {}

    def step(self, action: Any) -> Step:
        reward = -float(np.square(np.asarray(action) - self._target).sum())
        self._steps += 1
        return self._draw(), reward, False, self._steps >= self.episode_length, {}

    def _draw(self) -> Any:
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        self._target = self.np_random.uniform(space.low, space.high).astype(np.float32)
        return self._target


class ChainEnv(gymnasium.Env[Any, Any]):
    """Episodes of fixed length whose observation says where they stand: (episode number, step), reward = step.

    Every `terminate_every`-th episode ends by termination, the others by truncation, so that a buffer's rows can be
    checked against the truth. The action does nothing.
    """

    def __init__(self, length: int = 5, terminate_every: int = 2, action_space: Any = None) -> None:
        self.observation_space = spaces.Box(0.0, 1e6, (2,), np.float32)
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.length, self.terminate_every = length, terminate_every
        self.episode, self.position = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.position = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> Step:
        reward = float(self.position)
        self.position += 1
        over = self.position >= self.length
        terminated = over and self.terminates(self.episode)
        return self._observation(), reward, terminated, over and not terminated, {}

    def terminates(self, episode: int) -> bool:
        """Whether this episode ends by termination."""
        return self.terminate_every > 0 and episode % self.terminate_every == 0

    def _observation(self) -> Any:
        return np.array([self.episode, self.position], np.float32)


class AnySpaceEnv(gymnasium.Env[Any, Any]):
    """Random observations of any space, random rewards, any action space: for checking that shapes and dtypes fit."""

    def __init__(self, observation_space: Any, action_space: Any, episode_length: int = 12) -> None:
        self.observation_space, self.action_space = deepcopy(observation_space), deepcopy(action_space)
        self.episode_length, self._steps = episode_length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Step:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is outside {self.action_space}")
        self._steps += 1
        over = self._steps >= self.episode_length
        terminated = bool(over and self.np_random.random() < 0.5)
        return self.observation_space.sample(), float(self.np_random.normal()), terminated, over and not terminated, {}


class FakeImageEnv(AnySpaceEnv):
    """Random uint8 images, channels last or first."""

    def __init__(
        self, size: int = 36, channels: int = 1, channels_first: bool = False, action_space: Any = None
    ) -> None:
        shape = (channels, size, size) if channels_first else (size, size, channels)
        actions = action_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        super().__init__(spaces.Box(0, 255, shape, np.uint8), actions)


class SimpleMultiObsEnv(AnySpaceEnv):
    """A Dict observation of a vector, a discrete value and a small image."""

    def __init__(self, action_space: Any = None) -> None:
        parts = {
            "camera": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "mode": spaces.Discrete(3, start=1),
            "vec": spaces.Box(-2.0, 2.0, (3,), np.float32),
        }
        super().__init__(spaces.Dict(parts), action_space or spaces.Box(-1.0, 1.0, (2,), np.float32))
