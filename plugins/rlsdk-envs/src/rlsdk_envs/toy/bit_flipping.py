"""The bit-flipping task: flip bits until they equal a goal.

Source: Andrychowicz et al. 2017, arXiv:1707.01495, section 3.1.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class BitFlippingEnv(gymnasium.Env[object, object]):
    """The agent flips bits until all `n_bits` bits equal a goal.

    Observations are a Dict of `observation`, `achieved_goal` and `desired_goal` with `n_bits` bits each. An action is the index
    of the bit to flip. With `continuous=True` it has a number for each bit, and bits with positive numbers are flipped.
    The reward is 0 when the goal is reached, else -1.
    """

    def __init__(self, n_bits: int = 10, continuous: bool = False, max_steps: int | None = None) -> None:
        bits = spaces.MultiBinary(n_bits)
        self.observation_space = spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self.action_space = spaces.Box(-1.0, 1.0, (n_bits,), np.float32) if continuous else spaces.Discrete(n_bits)
        self.n_bits, self.continuous, self.max_steps = n_bits, continuous, max_steps or n_bits
        self._steps = 0
        self._state = self._goal = np.zeros(n_bits, np.int8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._steps = 0
        self._state, self._goal = self.np_random.integers(2, size=(2, self.n_bits)).astype(np.int8)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[object, float, bool, bool, dict[str, object]]:
        flips = np.asarray(action) > 0.0 if self.continuous else np.arange(self.n_bits) == int(action)
        self._state = np.where(flips, 1 - self._state, self._state).astype(np.int8)
        self._steps += 1
        reward = float(self.compute_reward(self._state, self._goal, {}))
        reached = reward == 0.0
        truncated = self._steps >= self.max_steps and not reached
        return self._observation(), reward, reached, truncated, {"is_success": reached}

    def render(self, mode: str = "human") -> None:
        """Do nothing. The method exists so that loops that call `render` work."""

    def compute_reward(self, achieved_goal: object, desired_goal: object, info: object) -> NDArray[np.float32]:
        """The reward: 0 where all bits of both goals agree, else -1. Goals may have leading batch axes."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - 1.0

    def compute_terminated(self, achieved_goal: object, desired_goal: object, info: object) -> NDArray[np.bool_]:
        """Whether all bits of both goals agree, which ends the episode. Goals may have leading batch axes."""
        equal: NDArray[np.bool_] = np.all(np.asarray(achieved_goal) == np.asarray(desired_goal), axis=-1)
        return equal

    def _observation(self) -> dict[str, NDArray[np.int8]]:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }
