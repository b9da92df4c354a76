"""An environment with a speed limit: speed is rewarded, and speed above the limit has a cost."""

from __future__ import annotations

import gymnasium
import numpy as np
from numpy.typing import NDArray


class Sprint(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """50 steps. The action is thrust, the reward is the speed, and each step faster than 0.5 costs 1."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.speed, self.clock = 0.0, 0

    def reset(self, *, seed: int | None = None, **_: object) -> tuple[NDArray[np.float32], dict[str, object]]:
        super().reset(seed=seed)
        self.speed, self.clock = float(self.np_random.uniform(-0.1, 0.1)), 0
        return np.array([self.speed], np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, object]]:
        self.speed = 0.8 * self.speed + 0.2 * float(action[0])
        self.clock += 1
        info: dict[str, object] = {"cost": float(self.speed > 0.5)}
        return np.array([self.speed], np.float32), self.speed, False, self.clock >= 50, info


def make(name: str) -> Sprint:
    """Make `safe/Sprint-v0`, the only environment of the namespace."""
    return Sprint()
