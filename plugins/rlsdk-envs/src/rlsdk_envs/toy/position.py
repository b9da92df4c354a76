"""The relative position of an action in its space, a number that tasks with any action space can use."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Ends = NDArray[np.float64] | np.float64


def position_in(space: gymnasium.Space[object], action: Any) -> float:
    """The relative position of an action in its space, from 0 to 1.

    It is 0 if all parts of the action have their lowest or first value, and 1 if all have their highest or last value. It is
    the mean over the parts, such as the numbers of a Box.
    """
    if isinstance(space, spaces.Dict):
        return float(np.mean([position_in(child, action[name]) for name, child in space.spaces.items()]))
    if isinstance(space, spaces.Tuple):
        return float(np.mean([position_in(child, part) for child, part in zip(space.spaces, action, strict=True)]))
    low, high = _ends(space)
    width = np.where(high > low, high - low, 1.0)  # a part with a single value is at 0
    return float(np.clip((np.asarray(action) - low) / width, 0.0, 1.0).mean())


def action_at(space: gymnasium.Space[object], position: float) -> object:
    """The action whose parts all have the relative position `position`: the inverse of `position_in`.

    Discrete values are rounded.
    """
    if isinstance(space, spaces.Dict):
        return {name: action_at(child, position) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(action_at(child, position) for child in space.spaces)
    low, high = _ends(space)
    value = np.asarray(low + position * (high - low))
    return (value if isinstance(space, spaces.Box) else np.rint(value)).astype(space.dtype)


def _ends(space: gymnasium.Space[object]) -> tuple[Ends, Ends]:
    """(first value, last value) of a space, both with the shape of the space."""
    if isinstance(space, spaces.Discrete):
        return np.float64(space.start), np.float64(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.float64), (space.start + space.nvec - 1).astype(np.float64)
    if isinstance(space, spaces.Box):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    return np.zeros(space.shape or ()), np.ones(space.shape or ())
