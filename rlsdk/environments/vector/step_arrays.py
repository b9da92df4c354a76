"""The arrays into which environments write the results of a step, and a record of the episodes that ended in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.adapters.masks import MaskRule
from rlsdk.environments.adapters.nested import Allocate, Arrays, rows_of
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.spaces import Space


@dataclass(frozen=True, slots=True)
class Ended:
    """The F episodes that ended in one step, in ascending order of `rows`.

    It has the last observation and mask, the return, the length and the success of each.
    """

    rows: list[int]
    observation: Arrays  # [F, ...]
    mask: NDArray[np.bool_] | None  # [F, A]
    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]


class StepArrays:
    """The arrays into which environments write the results of a step or reset, with one row per environment."""

    def __init__(self, observation_space: Space, action_space: Space, rows: int, make: Allocate) -> None:
        self.observation = ObservationBatcher(observation_space).allocate(rows, make)
        self.spaces = observation_space, action_space
        self.reward = make((rows,), np.dtype(np.float32))
        self.terminated, self.truncated = make((rows,), np.dtype(np.bool_)), make((rows,), np.dtype(np.bool_))
        self.mask = make((rows, MaskRule(action_space).size), np.dtype(np.bool_))

    def part(self, start: int, end: int) -> StepArrays:
        """Views of the rows from `start` to `end`."""
        view = object.__new__(StepArrays)
        view.spaces, view.observation = self.spaces, rows_of(self.observation, slice(start, end))
        view.reward, view.mask = self.reward[start:end], self.mask[start:end]
        view.terminated, view.truncated = self.terminated[start:end], self.truncated[start:end]
        return view
