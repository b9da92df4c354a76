"""An environment with observations that identify each step, for checks of the rows in a replay buffer."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class ChainEnv(gymnasium.Env[object, object]):
    """An environment with episodes of `length` steps, observations (episode number, step) and the number of the step as reward.

    Every `terminate_every`-th episode ends by termination, the others by truncation. Actions have no effect. The rows of a
    replay buffer can be compared with these known values.
    """

    def __init__(
        self, length: int = 5, terminate_every: int = 2, action_space: gymnasium.Space[Any] | None = None
    ) -> None:
        self.observation_space = spaces.Box(0.0, 1e6, (2,), np.float32)
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.length, self.terminate_every = length, terminate_every
        self.episode, self.position = -1, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self.episode, self.position = 0 if seed is not None else self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        reward = float(self.position)
        self.position += 1
        over = self.position >= self.length
        terminated = over and self.terminates(self.episode)
        return self._observation(), reward, terminated, over and not terminated, {}

    def terminates(self, episode: int) -> bool:
        """Whether the episode number `episode` ends by termination."""
        return self.terminate_every > 0 and episode % self.terminate_every == 0

    def _observation(self) -> NDArray[np.float32]:
        return np.array([self.episode, self.position], np.float32)
