"""The T-maze task, a test of memory: the first observation determines the right turn at the end of a corridor.

Source: Bakker 2002.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class TMazeEnv(gymnasium.Env[object, object]):
    """The agent sees a cue (-1 or 1) in the first observation only, and needs it at the fork after `length` steps.

    Observations are [cue at the first step, else 0; 1 at the fork, else 0]. At the fork, action 0 is right for cue -1, and
    action 1 for cue 1. The reward is 1 for the right turn, else 0. Without memory the mean return is 0.5.
    """

    def __init__(self, length: int = 6) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length, self._position, self._cue = length, 0, 1

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._position, self._cue = 0, int(self.np_random.integers(2))
        return np.array([2.0 * self._cue - 1.0, 0.0], np.float32), {}

    def step(self, action: Any) -> tuple[object, float, bool, bool, dict[str, object]]:
        if self._position == self.length:
            right = int(action) == self._cue
            return self._observation(), float(right), True, False, {"is_success": right}
        self._position += 1
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.array([0.0, float(self._position == self.length)], np.float32)
