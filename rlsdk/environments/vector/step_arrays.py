"""Where copies of an environment write what a step gave, and the episodes that ended in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.adapters.masks import MaskRule
from rlsdk.environments.adapters.observations import Allocate, ObservationBatcher
from rlsdk.spaces import Space


@dataclass(frozen=True, slots=True)
class Ended:
    """Episodes that ended in one step: F rows, ascending, with the true last observation and mask of each."""

    rows: list[int]
    observation: Any  # arrays [F, ...]
    mask: NDArray[np.bool_] | None  # [F, A]
    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]


class StepArrays:
    """Where copies write what a step gave: one row per environment."""

    def __init__(self, observation_space: Space, action_space: Space, rows: int, make: Allocate) -> None:
        self.observation = ObservationBatcher(observation_space).allocate(rows, make)
        self.reward = make((rows,), np.float32)
        self.terminated, self.truncated = make((rows,), np.bool_), make((rows,), np.bool_)
        self.mask = make((rows, MaskRule(action_space).size), np.bool_)

    def part(self, start: int, end: int) -> StepArrays:
        """Views of the rows from `start` to `end`."""
        view = object.__new__(StepArrays)
        view.observation = _rows(self.observation, slice(start, end))
        view.reward, view.mask = self.reward[start:end], self.mask[start:end]
        view.terminated, view.truncated = self.terminated[start:end], self.truncated[start:end]
        return view


def _rows(arrays: Any, where: slice) -> Any:
    if isinstance(arrays, dict):
        return {key: _rows(value, where) for key, value in arrays.items()}
    return tuple(_rows(value, where) for value in arrays) if isinstance(arrays, tuple) else arrays[where]
