"""An algorithm that learns from prepared rewards."""

from __future__ import annotations

from typing import Any

from rlsdk.interfaces import Algorithm
from rlsdk.preparation.around import Around
from rlsdk.preparation.rewards import RewardScale
from rlsdk.records import Metrics, Rollout


class RewardedAlgorithm(Around[Algorithm[Any]]):
    """An algorithm whose `update` is given rollouts with prepared rewards."""

    def __init__(self, inner: Algorithm[Any], rewards: RewardScale) -> None:
        super().__init__(inner)
        self.rewards = rewards

    def update(self, batch: Any, *, progress: float) -> Metrics:
        return self.inner.update(self.rewards.seen(batch, normalize=True), progress=progress)

    def discarded(self, rollout: Rollout[Any, Any]) -> None:
        """Nothing is learnt from a rollout that was cut short, but its rewards belong to the statistics."""
        self.rewards.seen(rollout, normalize=False)
