"""An environment with one distant reward, which is hard to find without an intrinsic reward."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Where = NDArray[np.float32]


class Corridor(gymnasium.Env[Where, np.int64]):
    """Rooms in a row. Action 1 moves right, 0 left. The last room gives reward 1 and ends the episode, which is truncated after
    2 * `length` steps."""

    def __init__(self, length: int = 30) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.place = self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Where, dict[str, object]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Where, float, bool, bool, dict[str, object]]:
        self.place = min(max(self.place + (1 if action else -1), 0), self.length - 1)
        self.time += 1
        reached = self.place == self.length - 1
        return self._seen(), float(reached), reached, self.time >= 2 * self.length, {}

    def _seen(self) -> Where:
        row = np.zeros(self.length, np.float32)
        row[self.place] = 1.0
        return row


def make(name: str, **arguments: int) -> Corridor:
    """Make the environment of an id such as `corridor/Corridor-v0`, with 100 rooms."""
    return Corridor(**{"length": 100, **arguments})
