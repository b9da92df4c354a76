"""A corridor with a fork: what was seen at the start decides where to turn. Source: Bakker 2002, the T-maze task."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class TMazeEnv(gymnasium.Env[object, object]):
    """A cue (-1 or 1) shows at the first step only; after `length` steps the action 0 or 1 must name it.

    Observation [cue or 0, 1 at the fork]. Reward 1 for the right turn, 0 otherwise: without memory the mean is 0.5.
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
