"""An environment whose actions have a discrete and a continuous part."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class HybridActionEnv(gymnasium.Env[object, object]):
    """The agent must choose the tool and the force that the observation shows.

    The observation is [tool / (tools - 1), force]. The action is a Dict of `tool` and `force`. The reward for the right tool is
    1 minus the absolute difference of the forces, and 0 for a wrong tool.
    """

    def __init__(self, tools: int = 3, episode_length: int = 50) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        parts = {"force": spaces.Box(0.0, 1.0, (1,), np.float32), "tool": spaces.Discrete(tools)}
        self.action_space = spaces.Dict(parts)
        self.tools, self.episode_length, self._steps = tools, episode_length, 0
        self._tool, self._force = 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[object, float, bool, bool, dict[str, object]]:
        right = int(action["tool"]) == self._tool
        reward = 1.0 - abs(float(np.asarray(action["force"]).item()) - self._force) if right else 0.0
        self._steps += 1
        return self._next(), reward, False, self._steps >= self.episode_length, {}

    def _next(self) -> NDArray[np.float32]:
        self._tool, self._force = int(self.np_random.integers(self.tools)), float(self.np_random.random())
        return np.array([self._tool / max(1, self.tools - 1), self._force], np.float32)
