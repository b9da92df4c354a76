"""An environment whose observations tell the truth about every row of a buffer."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


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
        self.episode, self.position = 0 if seed is not None else self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
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
