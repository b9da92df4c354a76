"""The sixteen examples in the documentation of sb3-contrib for its six algorithms.

Only the imports are changed, and `gym` is replaced by `gymnasium`, with its results of `reset` and `step`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


class UsersEnvironment(gymnasium.Env[Any, Any]):
    """An example of a user's environment; its method for action masks is `valid_action_mask`."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.valid_action_mask()[action]
        self.steps += 1
        return np.full(3, self.steps / 20, np.float32), float(action), False, self.steps == 20, {}

    def valid_action_mask(self) -> NDArray[np.bool_]:
        """bool [4]: each action is forbidden at every fourth step."""
        return np.arange(4) != self.steps % 4
