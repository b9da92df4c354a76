"""Work done in this process, one item after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class SerialExecutor:
    """The executor that gives nothing away."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        return [work(item) for item in items]

    def close(self) -> None:
        """Nothing to end."""
