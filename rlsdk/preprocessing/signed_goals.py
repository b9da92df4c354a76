"""Signs of rewards for replay buffers that replace goals."""

from __future__ import annotations

from torch import Tensor

from rlsdk.interfaces import GoalRewards


class SignedGoals:
    """Gives the signs of rewards for replaced goals, because the replay buffer stores signs of all other rewards."""

    def __init__(self, inner: GoalRewards) -> None:
        self.inner = inner

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(signs of rewards [M], terminated bool [M] or None); see `GoalRewards.compute_reward`."""
        reward, terminated = self.inner.compute_reward(achieved, goal)
        return reward.sign(), terminated
