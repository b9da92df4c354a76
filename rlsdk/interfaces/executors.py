"""Where independent pieces of work are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Executor(Protocol):
    """Runs independent items of work, here or elsewhere; results do not depend on where.

    An item is run again if its machine or process dies, a bounded number of times; then `WorkError` is raised. An exception
    of an item is raised here as its own class where that can be imported here, else as `WorkError`; the trace of the other
    process is among its notes.
    """

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """`work(item)` for every item, in the order of the items. `work` and items are picklable.

        The first exception ends it: items that were not begun are not begun any more.
        """
        ...

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """`work(item)` of one item, as a future; as many run at a time as there are workers."""
        ...

    def close(self) -> None:
        """End all workers that were started here; no `map` or `submit` follows."""
        ...
