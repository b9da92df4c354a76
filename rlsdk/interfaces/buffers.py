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
    """A memory of collected experience. What it promises besides depends on what it samples; `rlsdk check` tests it.

    - `Transitions`: every row is a stored step with the action, mask, extras and info of that step, what it led to, and a
      discount that is 0 at terminations only; or n steps of one episode, fewer at its end and at the newest row. All rows are
      equally likely, but for a memory that is `Prioritized`.
    - `Sequences`: every column holds consecutive steps of one environment, the next episode after the end of one. Padding and
      filler rows are not `valid`. `loss_mask` is False there and in the first rows, which are for the carry alone.
      `initial_carry` is that of the time.
    - A record of the plugin's own: its meaning is the plugin's.

    In all of them filler rows (`StepData.valid` is False) and overwritten steps are never sampled, every other step can be, and
    the state makes another memory sample the same, now and after further steps.
    """

    def extend(self, item: ItemT_contra) -> None:
        """Append what was collected: a `Rollout` [T, B] of raw observations and rewards. The oldest steps make room."""
        ...

    def sample(self, size: int, generator: Generator) -> BatchT_co:
        """`size` rows or sequences, drawn by `generator` alone; copies of what is stored."""
        ...

    def __len__(self) -> int:
        """Number of steps that can be sampled: never more than were stored, nor than the capacity."""
        ...

    def bytes_required(self) -> int:
        """Bytes of the full buffer, known before any of it is allocated; at least what `state_dict` of a full one holds."""
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
class SamplesSeveral(Protocol[BatchT_co]):
    """A memory that samples several batches in less time than one after another."""

    def sample_several(self, count: int, size: int, generator: Generator) -> BatchT_co:
        """The rows of `count` batches of `size` rows, one batch after the other: those that `sample` would have given."""
        ...


@runtime_checkable
class Prioritized(Protocol):
    """A memory that samples rows by their last errors."""

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """`index`: int64 [N], of the batch; `error`: float32 [N], see `HasTdError`. Errors are NaN or infinite where training
        diverged: leave the priority of such a row alone, as training may continue from earlier parameters."""
        ...
