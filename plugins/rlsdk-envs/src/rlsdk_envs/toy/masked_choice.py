"""An environment with random masks: the best action is the allowed one with the highest reward."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.environments import to_space
from rlsdk.spaces import choices_of
from rlsdk_envs.toy.position import position_in


class MaskedChoiceEnv(gymnasium.Env[object, object]):
    """An environment with a new random mask at each step. The observation is always 1.

    The reward is `position_in(space, action)`, or 1 minus it with `low_pays=True`. Episodes terminate after `episode_length`
    steps.
    """

    def __init__(
        self, action_space: gymnasium.Space[object] | None = None, low_pays: bool = False, episode_length: int = 8
    ) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.low_pays, self.episode_length, self._steps = low_pays, episode_length, 0
        self._choices = choices_of(to_space(self.action_space))
        self._mask = np.ones(sum(self._choices), dtype=bool)

    def action_masks(self) -> NDArray[np.bool_]:
        """The current action mask: bool [A], True where a value is allowed. Every part of the action has an allowed value."""
        return self._mask.copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        position = position_in(self.action_space, action)
        self._steps += 1
        over = self._steps >= self.episode_length
        return self._next(), 1.0 - position if self.low_pays else position, over, False, {}

    def _next(self) -> object:
        parts = [self.np_random.random(size) < 0.5 for size in self._choices]
        for part in parts:
            part[self.np_random.integers(len(part))] = True
        self._mask = np.concatenate(parts)
        return np.ones(1, np.float32)
