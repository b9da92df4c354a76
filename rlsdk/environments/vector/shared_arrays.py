"""The arrays of a vector environment in one block of memory that several processes share."""

from __future__ import annotations

import ctypes
from typing import TypeAlias

from rlsdk.environments.vector.step_arrays import StepArrays
from rlsdk.executors.shared_memory import ALIGNMENT, Layout
from rlsdk.spaces import Space

Block: TypeAlias = "ctypes.Array[ctypes.c_ubyte]"
"""The type of the block of memory that processes share."""


def bytes_for(observation_space: Space, action_space: Space, rows: int) -> int:
    """The size in bytes of the block for the arrays of `rows` environments."""
    layout = Layout()
    StepArrays(observation_space, action_space, rows, layout)
    return max(ALIGNMENT, layout.used)


def arrays_in(block: Block, observation_space: Space, action_space: Space, rows: int) -> StepArrays:
    """The arrays of `rows` environments as views of a block, which all processes share."""
    return StepArrays(observation_space, action_space, rows, Layout(memoryview(block).cast("B")))
