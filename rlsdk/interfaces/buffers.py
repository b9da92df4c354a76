"""Memories of experience and their optional abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor

from rlsdk.interfaces.state import Stateful
from rlsdk.records import Features

ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
BatchT_co = TypeVar("BatchT_co", covariant=True)


@runtime_checkable
class Buffer(Stateful, Protocol[ItemT_contra, BatchT_co]):
    """A memory of collected experience."""

    def extend(self, item: ItemT_contra) -> None: ...

    def sample(self, size: int, generator: Generator) -> BatchT_co: ...

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        ...

    def bytes_required(self) -> int:
        """Bytes of the full buffer, known before any of it is allocated."""
        ...


@runtime_checkable
class HasObservations(Protocol):
    """A memory that is filled before the training begins; running statistics read its observations."""

    def observations(self) -> Iterator[Features]:
        """All observations on which an action was taken, raw, in batches [N, ..]."""
        ...


@runtime_checkable
class HasEpisodeRewards(Protocol):
    """A memory that is filled before the training begins; the scaling of rewards (`normalize`) reads its rewards."""

    def episode_rewards(self) -> Iterator[Tensor]:
        """The rewards of each episode, raw, float32 [T]."""
        ...


@runtime_checkable
class Prioritized(Protocol):
    """A memory that samples rows by their last errors."""

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """`index`: int64 [N], of the batch; `error`: float32 [N], see `HasTdError`."""
        ...
