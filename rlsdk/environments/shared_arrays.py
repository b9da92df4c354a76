"""The arrays of a vector environment in one block of memory that several processes see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlsdk.environments.copies import StepArrays
from rlsdk.spaces import Space

ALIGNMENT = 64


class _Layout:
    """Places arrays one after another; without a block it only counts."""

    def __init__(self, block: Any = None) -> None:
        self.block, self.used = block, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Any:
        start, kind = self.used, np.dtype(dtype)
        self.used += -(-math.prod(shape) * kind.itemsize // ALIGNMENT) * ALIGNMENT
        if self.block is None:
            return np.empty(0, kind)
        return np.frombuffer(self.block, kind, math.prod(shape), start).reshape(shape)


def bytes_for(observation_space: Space, action_space: Space, rows: int) -> int:
    """Size of the block."""
    layout = _Layout()
    StepArrays(observation_space, action_space, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Any, observation_space: Space, action_space: Space, rows: int) -> StepArrays:
    """The arrays inside a block; every process that asks sees the same memory."""
    return StepArrays(observation_space, action_space, rows, _Layout(block))
