"""An executor that runs work in this process, one item after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from rlsdk.executors.stateful import StatefulHere

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class SerialExecutor:
    """The executor that runs every item in this process, one after another."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        return [work(item) for item in items]

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Return a finished future of `work(item)`: the work is done before this method returns."""
        return done_now(work, item)

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulHere:
        """See `rlsdk.interfaces.HasStatefulWorkers`."""
        return StatefulHere(makers)

    def close(self) -> None:
        """Do nothing: there are no processes to end."""


def done_now(work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
    """Call `work(item)` and return a finished future with its result or its exception."""
    future = Future[ResultT]()
    try:
        future.set_result(work(item))
    except Exception as error:
        future.set_exception(error)
    return future
