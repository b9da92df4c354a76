"""Memories of experience."""

from rlsdk.buffers.budget import require_memory
from rlsdk.buffers.choose import build_replay
from rlsdk.buffers.hindsight import HindsightReplay
from rlsdk.buffers.prioritized import PrioritizedReplay
from rlsdk.buffers.replay import ReplayBuffer
from rlsdk.buffers.sum_tree import SumTree

__all__ = ["HindsightReplay", "PrioritizedReplay", "ReplayBuffer", "SumTree", "build_replay", "require_memory"]
