"""A replay memory that keeps what was seen and normalises what it gives, with the statistics of today."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Generator

from rlsdk.interfaces import Buffer
from rlsdk.preparation.around import Around
from rlsdk.preparation.normalizer import Normalizer
from rlsdk.records import Observation, Transitions


class NormalizedReplay(Around[Buffer[Any, Transitions]]):
    """Wraps the memory of an off-policy algorithm."""

    def __init__(self, inner: Buffer[Any, Transitions], normalizer: Normalizer) -> None:
        super().__init__(inner)
        self.normalizer = normalizer

    def extend(self, item: Any) -> None:
        self.inner.extend(self.normalizer.rewards.seen(item, normalize=False))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """What the memory gives. `Transitions` are normalised; of batches of other types the algorithm normalises what it
        needs, by `Facts.observation_normalizer` and `Facts.reward_normalizer`."""
        batch = self.inner.sample(size, generator)
        if not isinstance(batch, Transitions):
            return batch
        return replace(
            batch,
            observation=self._normalized(batch.observation),
            next_observation=self._normalized(batch.next_observation),
            reward=self.normalizer.rewards.normalized(batch.reward),
        )

    def _normalized(self, observation: Observation) -> Observation:
        return replace(observation, features=self.normalizer.normalized(observation.features))

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required()
