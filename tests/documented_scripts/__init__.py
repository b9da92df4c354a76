"""The sixteen examples in the documented library's manuals for the six algorithms.

Only their imports are changed, and `gym` to `gymnasium` with its results of `reset` and `step`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


class UsersEnvironment(gymnasium.Env[Any, Any]):
    """Stands for the environment that a reader brings: its method for action masks has a name of its own."""

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
