"""An executor that uses a `concurrent.futures.Executor`: of the standard library, loky, dask.distributed or mpi4py."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from concurrent.futures import Executor as Pool
from typing import Any, TypeVar

from rlsdk.errors import RlsdkError, WorkError, raised
from rlsdk.executors.pieces import Submitting, attempt, result_of

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ATTEMPTS = 2


class FuturesExecutor:
    """An executor that sends its work to a pool, a `concurrent.futures.Executor`.

    Args:
        pool: a pool, or a function that makes one. `close` leaves a given pool open and shuts down one that the function
            made. If the death of a worker breaks the pool, the function is called again. Processes must not be forked: torch
            may wait forever in them. Give `mp_context=multiprocessing.get_context("spawn")` to `ProcessPoolExecutor`.
        workers: how many items run at the same time. `map` sends up to twice this number to the pool, so that items wait.
    """

    def __init__(self, pool: Pool | Callable[[], Pool], workers: int) -> None:
        self._make = None if isinstance(pool, Pool) else pool
        self._pool = pool if isinstance(pool, Pool) else None
        self._changing = threading.Lock()
        self._submitting = Submitting[Any](self, workers)
        self._given = set[Future[Any]]()
        self.workers = workers
        self.repeated = 0
        """How many items were sent to the pool again because a worker died."""

    def adopt(self, pool: Pool) -> None:
        """Use this pool, which the function has made already."""
        self._pool = pool

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        answers: dict[int, ResultT] = {}
        waiting, broken = list(range(len(items)))[::-1], Counter[int]()
        running: dict[Future[Any], tuple[int, Pool]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (1 if _suspect(broken, waiting, running) else 2 * self.workers):
                    index, pool = waiting.pop(), self._opened()
                    future = _sent(pool, work, items[index])
                    running[future] = index, pool
                    self._given.add(future)
                    future.add_done_callback(self._given.discard)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index, pool = running.pop(future)
                    if isinstance(future.exception(), BrokenExecutor):
                        self._renew(pool)
                        self._lost(index, broken, future)
                        waiting.append(index)
                    else:
                        answers[index] = result_of(_fetched(future, index))
        finally:
            for future in running:
                future.cancel()
        return [answers[i] for i in range(len(items))]

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        return self._submitting.submit(work, item)

    def close(self) -> None:
        """Shut down the pool if the function made it, and cancel work that has not begun.

        If no item runs, this waits until the processes of the pool have ended. Without this wait the Python process could
        hang when it exits, because the workers would not be notified. Items that run are not waited for.
        """
        self._submitting.close()
        if self._pool is not None and self._make is not None:
            idle = all(future.done() for future in tuple(self._given))
            try:
                self._pool.shutdown(wait=idle, cancel_futures=True)
            except TypeError:  # `shutdown` of loky has no argument `cancel_futures`
                self._pool.shutdown(wait=idle)

    def _opened(self) -> Pool:
        with self._changing:
            if self._pool is None:
                assert self._make is not None
                self._pool = self._make()
            return self._pool

    def _renew(self, pool: Pool) -> None:
        """Drop the broken pool, so that the next item gets a new one. If several threads call this, it is done once."""
        with self._changing:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)

    def _lost(self, index: int, broken: Counter[int], future: Future[Any]) -> None:
        """Count that a worker died while item `index` was at the pool; raise WorkError if the item may not be repeated."""
        broken[index] += 1
        reason = future.exception()
        if self._make is None:
            raise WorkError(f"a worker died while item {index} was at the pool, which is of no use any more: {reason}")
        if broken[index] >= ATTEMPTS:
            raise WorkError(f"item {index} ended its process twice: {reason}")
        self.repeated += 1


def _suspect(broken: Counter[int], waiting: list[int], running: dict[Future[Any], tuple[int, Pool]]) -> bool:
    """Return whether the next or a running item was at the pool when a worker died.

    Such an item runs alone. If a worker dies again, that item is the cause.
    """
    return bool(broken[waiting[-1]]) or any(broken[index] for index, _ in running.values())


def _sent(pool: Pool, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[Any]:
    """Send one item to the pool and return its future. If the pool refuses the item, the future holds the exception."""
    try:
        return pool.submit(attempt, work, item)
    except Exception as error:
        future = Future[Any]()
        future.set_exception(error)
        return future


def _fetched(future: Future[Any], index: int) -> Any:
    """Return the result of a finished future. An exception of the pool, mostly a pickling error, becomes a `WorkError`."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RlsdkError):
        raise error
    raise WorkError(
        f"item {index} could not be sent to the pool or its result not be fetched: it {raised(error)}; give a function that"
        " a module holds, and items and results of plain values, arrays and records"
    ) from error
