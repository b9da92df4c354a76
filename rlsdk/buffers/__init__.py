"""Memories of experience."""

from rlsdk.buffers.budget import require_memory
from rlsdk.buffers.choose import build_replay
from rlsdk.buffers.replay import ReplayBuffer

__all__ = ["ReplayBuffer", "build_replay", "require_memory"]
