"""Where independent pieces of work are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, runtime_checkable

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


class StatefulWorkers(Protocol):
    """Workers that live on, each with a function of its own, which may remember things from one request to the next."""

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        """The answers to one request for each of some workers, which work at the same time.

        A worker that died has a `rlsdk.executors.workers.WorkerDied` instead of an answer. An exception of a function is
        raised here. Large arrays that are fields of `attrs` records travel by reference, once where requests share them.
        """
        ...

    def replace(self, index: int) -> None:
        """Start a new worker in the place of one that died; its function is made again and remembers nothing."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


@runtime_checkable
class HasStatefulWorkers(Executor, Protocol):
    """An executor whose workers may keep state, which parallel collecting needs."""

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulWorkers:
        """A worker for each of the makers, which are picklable: called there, they give the function that answers its
        requests. The workers end when this process does."""
        ...
