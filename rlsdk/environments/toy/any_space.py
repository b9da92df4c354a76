"""Environments of any space, with random observations: for checking that shapes and dtypes fit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


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

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
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
