"""Protocols of executors, which run independent pieces of work, for example in other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, runtime_checkable

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Executor(Protocol):
    """Runs independent items of work in this process, in other processes or on other machines, with the same results.

    If the process or machine of an item dies, the item is run again, a bounded number of times; then `WorkError` is
    raised. An exception of an item is raised in the calling process with its class, if that can be imported, else as
    `WorkError`. The traceback of the other process is in the notes of the exception.
    """

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """Return `work(item)` for every item, in the order of the items. `work` and the items must be picklable.

        The first exception ends the call: items that have not started are not run.
        """
        ...

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` and return a future. At most one item per worker runs at a time."""
        ...

    def close(self) -> None:
        """End all workers that this executor started. Do not call `map` or `submit` afterwards."""
        ...


class StatefulWorkers(Protocol):
    """Workers that run until they are closed. Each has a separate function, which may store state between requests."""

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        """Send one request to each of some workers, which work in parallel, and return their answers by worker number.

        A worker that died has a `rlsdk.executors.workers.WorkerDied` instead of an answer. An exception of a function
        is raised in the calling process. Large arrays in fields of `attrs` records are passed by reference, and stored
        once if several requests contain them.
        """
        ...

    def replace(self, index: int) -> None:
        """Start a new worker in place of one that died. It calls its maker again for a new function, without the
        earlier state."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


@runtime_checkable
class HasStatefulWorkers(Executor, Protocol):
    """An executor whose workers can store state between requests, which parallel collecting needs."""

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulWorkers:
        """Start one worker for each of the makers, which must be picklable.

        The worker calls its maker, which returns the function that answers requests. Workers end when the calling
        process ends.
        """
        ...
