"""Memories of experience."""

from rlsdk.buffers.budget import require_memory
from rlsdk.buffers.choose import build_replay
from rlsdk.buffers.hindsight import GoalSelectionStrategy, HindsightReplay
from rlsdk.buffers.minibatches import PolicyBatch, in_order, policy_batch, shuffled
from rlsdk.buffers.prioritized import PrioritizedReplay
from rlsdk.buffers.replay import ReplayBuffer
from rlsdk.buffers.sum_tree import SumTree

__all__ = [
    "GoalSelectionStrategy",
    "HindsightReplay",
    "PolicyBatch",
    "PrioritizedReplay",
    "ReplayBuffer",
    "SumTree",
    "build_replay",
    "in_order",
    "policy_batch",
    "require_memory",
    "shuffled",
]
