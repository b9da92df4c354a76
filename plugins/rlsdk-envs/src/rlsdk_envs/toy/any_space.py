"""Environments with any observation and action space and random observations, for checks of shapes and dtypes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.environments import to_space
from rlsdk.spaces import choices_of

Space = gymnasium.Space[Any]


class AnySpaceEnv(gymnasium.Env[object, object]):
    """An environment with any observation and action space, random observations and random rewards.

    It is for checks of shapes and dtypes. Discrete choices have random masks, `action_masks()`. With `strict=True` a forbidden
    action raises ValueError.
    """

    def __init__(
        self, observation_space: Space, action_space: Space, episode_length: int = 12, strict: bool = False
    ) -> None:
        self.observation_space, self.action_space = deepcopy(observation_space), deepcopy(action_space)
        self.episode_length, self.strict, self._steps = episode_length, strict, 0
        self._choices = choices_of(to_space(action_space))
        self._mask = np.ones(sum(self._choices), dtype=bool)

    def action_masks(self) -> NDArray[np.bool_]:
        """The current action mask: bool [A], True where the action is allowed."""
        return self._mask.copy()

    def _draw_mask(self) -> None:
        parts = [self.np_random.random(size) < 0.6 for size in self._choices]
        for part in parts:
            part[self.np_random.integers(len(part))] = True
        self._mask = np.concatenate([*parts, np.zeros(0, dtype=bool)])

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        self._draw_mask()
        return self.observation_space.sample(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is outside {self.action_space}")
        if self.strict and not all(self._mask[entry] for entry in _entries(self.action_space, action)):
            raise ValueError(f"action {action!r} is forbidden by the mask {self._mask.astype(int)}")
        self._steps += 1
        self._draw_mask()
        over = self._steps >= self.episode_length
        terminated = bool(over and self.np_random.random() < 0.5)
        return self.observation_space.sample(), float(self.np_random.normal()), terminated, over and not terminated, {}

    def render(self, mode: str = "human") -> None:
        """Do nothing. The method exists so that loops that call `render` work."""


def _entries(space: object, action: object) -> list[int]:
    """The indices of the entries of the mask that belong to the values in `action`."""
    found: list[int] = []
    start = 0
    for leaf, value in _leaves(space, action):
        sizes = choices_of(to_space(leaf))
        first = leaf.start if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete) else 0
        for size, chosen in zip(sizes, np.ravel(np.asarray(value) - first), strict=False):
            found.append(start + int(chosen))
            start += size
    return found


def _leaves(space: object, action: Any) -> list[tuple[object, object]]:
    if isinstance(space, spaces.Dict):
        return [pair for key, child in space.spaces.items() for pair in _leaves(child, action[key])]
    if isinstance(space, spaces.Tuple):
        return [pair for child, part in zip(space.spaces, action, strict=True) for pair in _leaves(child, part)]
    return [] if isinstance(space, spaces.Box) else [(space, action)]


class FakeImageEnv(AnySpaceEnv):
    """An environment with random uint8 images as observations, with channels last or first."""

    def __init__(
        self, size: int = 36, channels: int = 1, channels_first: bool = False, action_space: Space | None = None
    ) -> None:
        shape = (channels, size, size) if channels_first else (size, size, channels)
        actions = action_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        super().__init__(spaces.Box(0, 255, shape, np.uint8), actions)


class SimpleMultiObsEnv(AnySpaceEnv):
    """An environment with Dict observations of a vector, a discrete value and a small image, all random."""

    def __init__(self, action_space: Space | None = None) -> None:
        parts = {
            "camera": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "mode": spaces.Discrete(3, start=1),
            "vec": spaces.Box(-2.0, 2.0, (3,), np.float32),
        }
        super().__init__(spaces.Dict(parts), action_space or spaces.Box(-1.0, 1.0, (2,), np.float32))
