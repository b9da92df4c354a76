"""The `Buffer` Protocol, the part that stores experience, and its optional abilities."""

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
    """Stores collected experience and samples batches of it. The type of the batches determines their contents:

    - `Transitions`: every row is a stored step with the action, mask, extras and info of that step and the next
      observation. Its discount is 0 only at terminations. With n-step returns, a row covers n steps of one episode, or
      fewer at the end of the episode and at the newest stored step. All rows are equally likely, unless the buffer is
      `Prioritized`.
    - `Sequences`: every column holds consecutive steps of one environment; after the end of an episode the next one
      follows. Padding and filler rows are not `valid`. `loss_mask` is False in them and in the burn-in, the first rows,
      which only update the carry. `initial_carry` is the carry of the policy when it acted on the first row.
    - A record type of the plugin: the plugin defines its meaning.

    For all types: filler rows (`StepData.valid` is False) and overwritten steps are never sampled; every other step can
    be. A second buffer that loads the state of the first samples the same batches, also after both receive the same
    further steps.
    """

    def extend(self, item: ItemT_contra) -> None:
        """Append a `Rollout` [T, B] of observations and rewards without normalisation. A full buffer overwrites its
        oldest steps."""
        ...

    def sample(self, size: int, generator: Generator) -> BatchT_co:
        """Return `size` rows or sequences as copies of the stored data. All random numbers come from `generator`."""
        ...

    def __len__(self) -> int:
        """The number of steps that can be sampled: at most the number of stored steps, and at most the capacity."""
        ...

    def bytes_required(self) -> int:
        """The size of the full buffer in bytes, known before it is allocated; at least the size of the `state_dict` of
        a full one."""
        ...


@runtime_checkable
class HasObservations(Protocol):
    """A buffer that is filled before the training begins. The normaliser computes its statistics from the buffer's
    observations."""

    def observations(self) -> Iterator[Features]:
        """Yield all observations in which an action was taken, without normalisation, in batches [N, ..]."""
        ...


@runtime_checkable
class HasEpisodeRewards(Protocol):
    """A buffer that is filled before the training begins. The scaling of rewards (`normalize`) uses the buffer's rewards."""

    def episode_rewards(self) -> Iterator[Tensor]:
        """Yield the rewards of each episode, without normalisation, float32 [T]."""
        ...


@runtime_checkable
class SamplesSeveral(Protocol[BatchT_co]):
    """A buffer that samples several batches together faster than one by one."""

    def sample_several(self, count: int, size: int, generator: Generator) -> BatchT_co:
        """Return `count` batches of `size` rows, concatenated: the same rows that `count` calls of `sample` would return."""
        ...


@runtime_checkable
class Prioritized(Protocol):
    """A buffer that samples rows according to their most recent errors (prioritised replay)."""

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """Set the priorities of the sampled rows `index`, int64 [N], from their errors, float32 [N]; see `HasTdError`.

        Errors are NaN or infinite if the training diverged. Leave the priorities of such rows unchanged, as the
        training may continue from earlier parameters.
        """
        ...
