"""Replay buffers."""

from typing import TYPE_CHECKING

from rlsdk.buffers.columns import Columns
from rlsdk.buffers.factory import build_replay
from rlsdk.buffers.hindsight import GoalSelectionStrategy, HindsightReplay
from rlsdk.buffers.replay import PrioritizedReplay, ReplayBuffer
from rlsdk.buffers.sequences import SequenceReplay, rows_in_order
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.runtime.memory import require_memory

__all__ = [
    "Columns",
    "GoalSelectionStrategy",
    "HindsightReplay",
    "PrioritizedReplay",
    "ReplayBuffer",
    "SequenceReplay",
    "build_replay",
    "require_memory",
    "rows_in_order",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
