"""Signs of rewards for memories that change goals."""

from __future__ import annotations

from torch import Tensor

from rlsdk.parts import GoalJudge


class SignedGoals:
    """Gives the signs of the rewards for goals chosen afterwards, as memories hold those of the others."""

    def __init__(self, inner: GoalJudge) -> None:
        self.inner = inner

    def judge(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `GoalJudge.judge`."""
        reward, terminated = self.inner.judge(achieved, goal)
        return reward.sign(), terminated
