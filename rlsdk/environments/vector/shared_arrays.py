"""The arrays of a vector environment in one block of memory that several processes see."""

from __future__ import annotations

from rlsdk.environments.vector.step_arrays import StepArrays
from rlsdk.executors.shared_memory import ALIGNMENT, Layout
from rlsdk.spaces import Space


def bytes_for(observation_space: Space, action_space: Space, rows: int) -> int:
    """Size of the block."""
    layout = Layout()
    StepArrays(observation_space, action_space, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: object, observation_space: Space, action_space: Space, rows: int) -> StepArrays:
    """The arrays inside a block; all processes see the same memory."""
    return StepArrays(observation_space, action_space, rows, Layout(block))
