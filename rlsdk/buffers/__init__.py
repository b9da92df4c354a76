"""Replay buffers and data sets of recorded episodes."""

from typing import TYPE_CHECKING

from rlsdk.buffers.columns import Columns
from rlsdk.buffers.episode_file import RecordedEpisode, checked_episode, require_place, write_episodes
from rlsdk.buffers.episodes import Episodes, RecordedSequences, RecordedTransitions, open_episodes, summary_of
from rlsdk.buffers.factory import build_replay
from rlsdk.buffers.hindsight import GoalSelectionStrategy, HindsightReplay
from rlsdk.buffers.replay import PrioritizedReplay, ReplayBuffer
from rlsdk.buffers.sequences import SequenceReplay, rows_in_order
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.runtime.memory import require_memory

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
