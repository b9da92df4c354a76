"""The arrays of a vector environment in one block of memory that several processes see."""

from __future__ import annotations

from typing import Any

from rlsdk.environments.copies import StepArrays
from rlsdk.parcels import ALIGNMENT, Layout
from rlsdk.spaces import Space


def bytes_for(observation_space: Space, action_space: Space, rows: int) -> int:
    """Size of the block."""
    layout = Layout()
    StepArrays(observation_space, action_space, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Any, observation_space: Space, action_space: Space, rows: int) -> StepArrays:
    """The arrays inside a block; every process that asks sees the same memory."""
    return StepArrays(observation_space, action_space, rows, Layout(block))
