"""Where independent pieces of work are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Executor(Protocol):
    """Runs independent items of work, here or elsewhere; results do not depend on where."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """`work(item)` for every item, in the order of the items. `work` and items are picklable.

        An item is run again, once, if its machine or process dies; an exception of an item is raised here.
        """
        ...

    def close(self) -> None:
        """End all workers; no `map` follows."""
        ...
