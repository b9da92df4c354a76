"""An environment with images whose steps take almost no time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

Frame = NDArray[np.uint8]
EPISODE = 200


class DrawnFrames(gym.Env[Frame, np.int64]):
    """Shows 64 random images [84, 84, 4] in turn, in episodes of 200 steps. Rewards are 0 or 1, at random."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(0, 255, (84, 84, 4), np.uint8), Discrete(6)
        generator = np.random.default_rng(0)
        self._frames = generator.integers(0, 256, (64, 84, 84, 4), np.uint8)
        self._rewards = generator.integers(0, 2, 64).astype(float)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._frames[0], {}

    def step(self, action: np.int64) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        now = self._steps % len(self._frames)
        return self._frames[now], float(self._rewards[now]), False, self._steps == EPISODE, {}
