"""Passes the errors of each update to a prioritised buffer."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from rlsdk.errors import PluginError, SettingsError
from rlsdk.interfaces import HasTdError, Parts, Prioritized
from rlsdk.interfaces.abilities import ability


class IndexedBatch(Protocol):
    """A batch with the indices of its rows in the buffer, as prioritised buffers sample it."""

    @property
    def index(self) -> Tensor:
        """The index of each row in the buffer, int64 [N]."""
        ...


class Priorities:
    """Sets the priorities of a prioritised buffer to the errors of an algorithm."""

    def __init__(self, memory: Prioritized, algorithm: HasTdError) -> None:
        self.memory, self.algorithm = memory, algorithm

    @classmethod
    def of(cls, parts: Parts) -> Priorities | None:
        """Return the `Priorities` of these parts; None if the buffer is not `Prioritized`.

        Raises:
            SettingsError: the buffer is prioritised, but the algorithm has no `td_error`.
        """
        memory, algorithm = ability(parts.buffer, Prioritized), ability(parts.algorithm, HasTdError)
        if memory is None:
            return None
        if algorithm is None:
            raise SettingsError(
                f"its buffer, {type(parts.buffer).__name__}, samples by the errors of the last batch, but its algorithm,"
                f" {type(parts.algorithm).__name__}, has no td_error (rlsdk.interfaces.HasTdError); choose a memory without"
                " priorities, such as replay_buffer_class = 'uniform'"
            )
        return cls(memory, algorithm)

    def follow(self, batch: IndexedBatch) -> None:
        """Pass the errors of the rows of `batch`, the batch of the last update, to the buffer.

        Raises:
            PluginError: the batch has no `index`, or the algorithm has no errors.
        """
        if not isinstance(getattr(batch, "index", None), Tensor):
            raise PluginError(
                f"its memory is Prioritized and samples {type(batch).__name__} without `index`; give int64 [N], see Transitions"
            )
        if (error := self.algorithm.td_error) is None:
            raise PluginError(
                f"{type(self.algorithm).__name__}.td_error is None after an update; prioritised replay needs one error per row"
            )
        self.memory.prioritize(batch.index, error)
