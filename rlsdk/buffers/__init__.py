"""Replay buffers and data sets of recorded episodes."""

from typing import TYPE_CHECKING

from rlsdk.buffers.columns import Columns
from rlsdk.buffers.data_set_summary import summary_of
from rlsdk.buffers.episode_file import require_place, write_episodes
from rlsdk.buffers.episodes import Episodes, open_episodes
from rlsdk.buffers.factory import build_replay
from rlsdk.buffers.hindsight import GoalSelectionStrategy, HindsightReplay
from rlsdk.buffers.prioritized import PrioritizedReplay
from rlsdk.buffers.recorded import RecordedSequences, RecordedTransitions
from rlsdk.buffers.recorded_episode import RecordedEpisode, checked_episode
from rlsdk.buffers.replay import ReplayBuffer
from rlsdk.buffers.rows_in_order import rows_in_order
from rlsdk.buffers.sequences import SequenceReplay
from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.runtime.memory_budget import require_memory

__all__ = [
    "Columns",
    "Episodes",
    "GoalSelectionStrategy",
    "HindsightReplay",
    "PrioritizedReplay",
    "RecordedEpisode",
    "RecordedSequences",
    "RecordedTransitions",
    "ReplayBuffer",
    "SequenceReplay",
    "build_replay",
    "checked_episode",
    "open_episodes",
    "require_memory",
    "require_place",
    "rows_in_order",
    "summary_of",
    "write_episodes",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
