"""Any `concurrent.futures.Executor` as an executor: of the standard library, loky, dask.distributed, mpi4py."""

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
    """An executor that gives its work to a pool of futures.

    Args:
        pool: a `concurrent.futures.Executor`, which `close` leaves open; or a function that makes one, which `close` shuts
            down and which is called again where the death of a worker broke the pool. Processes must not be forked: torch may
            wait forever in them. Give `mp_context=multiprocessing.get_context("spawn")` to `ProcessPoolExecutor`.
        workers: how many items are done at a time; as many again are waiting at the pool.
    """

    def __init__(self, pool: Pool | Callable[[], Pool], workers: int) -> None:
        self._make = None if isinstance(pool, Pool) else pool
        self._pool = pool if isinstance(pool, Pool) else None
        self._changing = threading.Lock()
        self._submitting = Submitting[Any](self, workers)
        self._given = set[Future[Any]]()
        self.workers = workers
        self.repeated = 0
        """Items that were given away again because a worker died."""

    def adopt(self, pool: Pool) -> None:
        """Begin with this pool, which the function made."""
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
        """Shut down the pool that the function made.

        Where no piece runs, this waits for the pool's processes: a process that ends while it has a pool can hang, because
        the pool's workers then never hear of it. Pieces that run are not waited for.
        """
        self._submitting.close()
        if self._pool is not None and self._make is not None:
            idle = all(future.done() for future in tuple(self._given))
            try:
                self._pool.shutdown(wait=idle, cancel_futures=True)
            except TypeError:  # loky's has no `cancel_futures`
                self._pool.shutdown(wait=idle)

    def _opened(self) -> Pool:
        with self._changing:
            if self._pool is None:
                assert self._make is not None
                self._pool = self._make()
            return self._pool

    def _renew(self, pool: Pool) -> None:
        """A pool in the place of one that is broken; the threads that use it do this once."""
        with self._changing:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)

    def _lost(self, index: int, broken: Counter[int], future: Future[Any]) -> None:
        """An item was at the pool when a worker died; it is counted, and refused when there were too many."""
        broken[index] += 1
        reason = future.exception()
        if self._make is None:
            raise WorkError(f"a worker died while item {index} was at the pool, which is of no use any more: {reason}")
        if broken[index] >= ATTEMPTS:
            raise WorkError(f"item {index} ended its process twice: {reason}")
        self.repeated += 1


def _suspect(broken: Counter[int], waiting: list[int], running: dict[Future[Any], tuple[int, Pool]]) -> bool:
    """Whether an item that may have ended a worker is next, or running: it runs alone, so that the second time it is known."""
    return bool(broken[waiting[-1]]) or any(broken[index] for index, _ in running.values())


def _sent(pool: Pool, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[Any]:
    """The future of one item; a pool that cannot take it answers with the reason."""
    try:
        return pool.submit(attempt, work, item)
    except Exception as error:
        future = Future[Any]()
        future.set_exception(error)
        return future


def _fetched(future: Future[Any], index: int) -> Any:
    """The answer; an exception of the pool itself, which mostly could not pickle something, becomes a `WorkError`."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RlsdkError):
        raise error
    raise WorkError(
        f"item {index} could not be sent to the pool or its result not be fetched: it {raised(error)}; give a function that"
        " a module holds, and items and results of plain values, arrays and records"
    ) from error
