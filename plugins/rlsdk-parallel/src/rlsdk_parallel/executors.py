"""Executors that run work in processes of this machine, and in pools such as those of `concurrent.futures`, loky and dask."""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from concurrent.futures import Executor as Pool
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rlsdk.errors import RlsdkError, WorkError, raised
from rlsdk.runtime import use_one_thread_here
from rlsdk_parallel.processes import MakeWorker, StatefulProcesses
from rlsdk_parallel.workers import Raised, Worker, WorkerDied, attempt, result_of

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


ENDING = 5.0
"""Seconds that processes have to end."""
ATTEMPTS = 2


class Processes:
    """An executor with `workers` processes, started when there is work. Functions and items must be picklable.

    A process that dies is replaced, and its item is tried once more. On Ctrl-C the processes get SIGTERM, running items are
    waited for and the others are not begun. A second Ctrl-C ends the processes immediately. The processes do not receive the
    Ctrl-C of the terminal themselves. They end a few seconds after this process.
    """

    def __init__(self, workers: int) -> None:
        self.count = workers
        self.repeated = 0
        """How many items were tried again because a process died."""
        self._pool, self._apart = StatefulProcesses([]), StatefulProcesses([])
        """The processes of `map` and of `submit`. Their functions have no state, but requests are sent in the same way."""
        self._submitting = Submitting(self._run, workers)
        self._idle, self._closed = SimpleQueue[Worker](), False
        """The processes of `submit` that are free, and whether they were ended."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        for _ in range(len(self._pool.workers), min(self.count, len(items))):
            _add_to(self._pool)
        try:
            return self._pool.spread([(work, item) for item in self._pool.pack(items)], self._count_repeated)
        except KeyboardInterrupt:
            self._stop()
            raise
        except BaseException:
            self._pool.end()
            raise

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` in a process that `map` does not use, and return the future of its result."""
        return self._submitting.submit(work, item)

    def _run(self, work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT:
        """Run a submitted item. Each that runs has a thread of its own, which calls this, and a process of its own."""
        # processes start only when more items run than before: starting one takes seconds
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _add_to(self._apart)
        try:
            result: ResultT = self._apart.spread([(work, item)], self._count_repeated, [worker])[0]
            return result
        finally:
            if worker.process.is_alive():
                self._idle.put(worker)

    def _count_repeated(self) -> None:
        if self._closed:  # `close` ended the process; a new one would outlive the executor
            raise WorkError("the executor was closed")
        self.repeated += 1

    def stateful_workers(self, makers: Sequence[MakeWorker]) -> StatefulProcesses:
        """See `HasStatefulWorkers`. `map` does not use these processes."""
        return StatefulProcesses(makers)

    def _stop(self) -> None:
        """Send SIGTERM to every process, wait until it answers or dies, and end it."""
        try:
            for worker in self._pool.workers:
                worker.process.terminate()
            for worker in self._pool.workers:
                with contextlib.suppress(WorkerDied):
                    worker.receive(math.inf)
        finally:
            self._pool.end()

    def close(self) -> None:
        """End the processes. The results of submitted items that run are lost."""
        # first the mark, then the kill: a thread whose process died must not start another one
        self._closed = True
        self._submitting.close()
        for worker in self._apart.workers:
            worker.process.kill()
        # there is nothing to close in them
        self._pool.close(ENDING)


def _add_to(pool: StatefulProcesses) -> Worker:
    """Start one more process that runs items of work."""
    shown = warnings.formatwarning
    ours = shown if shown.__module__.startswith("rlsdk.") else None  # a user's function may not be importable there
    # not a daemon: items are trainings, which may start processes for their environments
    return pool.add(partial(_make_piecework, ours), f"worker {len(pool.workers)}", daemon=False)


def _make_piecework(shown: Callable[..., str] | None) -> Callable[[Any], object]:
    """The function of a process that runs items. `shown` formats its warnings, None is Python's format."""
    if shown is not None:
        warnings.formatwarning = shown
    return lambda request: request[0](request[1])


class Submitting:
    """Adds `submit` to an executor with a function `run(work, item)` that may be called from several threads.

    There are as many threads as workers, each for one item.
    """

    def __init__(self, run: Callable[[Callable[[Any], Any], Any], Any], workers: int) -> None:
        self.run, self.workers = run, workers
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` in one of the threads, and return the future of its result."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="rlsdk-submitted")
        return self._threads.submit(self.run, work, item)

    def close(self) -> None:
        """Cancel the work that has not begun; running work is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class FuturesExecutor:
    """An executor that sends its work to a pool, a `concurrent.futures.Executor`.

    Args:
        pool: a pool, or a function that makes one. `close` leaves a given pool open and shuts down one that the function
            made. If the death of a worker breaks the pool, the function is called again. Processes must not be forked: torch
            may wait forever in them. Give `mp_context=multiprocessing.get_context("spawn")` to `ProcessPoolExecutor`.
        workers: how many items run at the same time. `map` sends up to twice this number to the pool, so that items wait.
        made: a pool that the function has made already; None: there is none.
    """

    def __init__(self, pool: Pool | Callable[[], Pool], workers: int, made: Pool | None = None) -> None:
        self._make = None if isinstance(pool, Pool) else pool
        self._pool = pool if isinstance(pool, Pool) else made
        self._changing = threading.Lock()
        self._submitting = Submitting(lambda work, item: self.map(work, [item])[0], workers)
        self._given = set[Future[Any]]()
        self.workers = workers
        self.repeated = 0
        """How many items were sent to the pool again because a worker died."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        answers: dict[int, ResultT] = {}
        waiting, broken = list(range(len(items)))[::-1], Counter[int]()
        running: dict[Future[ResultT | Raised], tuple[int, Pool]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (
                    1 if _suspect(broken, waiting, running.values()) else 2 * self.workers
                ):
                    index, pool = waiting.pop(), self._opened()
                    future = _sent(pool, work, items[index])
                    running[future] = index, pool
                    self._given.add(future)
                    future.add_done_callback(self._given.discard)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index, pool = running.pop(future)
                    if isinstance(future.exception(), BrokenExecutor):
                        self._renew(pool)
                        self._lost(index, broken, future.exception())
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

    def _lost(self, index: int, broken: Counter[int], reason: BaseException | None) -> None:
        """Count that a worker died while item `index` was at the pool; raise WorkError if the item may not be repeated."""
        broken[index] += 1
        if self._make is None:
            raise WorkError(f"a worker died while item {index} was at the pool, which is of no use any more: {reason}")
        if broken[index] >= ATTEMPTS:
            raise WorkError(f"item {index} ended its process twice: {reason}")
        self.repeated += 1


def _suspect(broken: Counter[int], waiting: list[int], running: Collection[tuple[int, Pool]]) -> bool:
    """Return whether the next or a running item was at the pool when a worker died.

    Such an item runs alone. If a worker dies again, that item is the cause.
    """
    return bool(broken[waiting[-1]]) or any(broken[index] for index, _ in running)


def _sent(pool: Pool, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT | Raised]:
    """Send one item to the pool and return its future. If the pool refuses the item, the future holds the exception."""
    try:
        return pool.submit(attempt, work, item)
    except Exception as error:
        future = Future[ResultT | Raised]()
        future.set_exception(error)
        return future


def _fetched(future: Future[ResultT], index: int) -> ResultT:
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


class StatefulHere:
    """Stateful workers that are functions in this process, called one after another."""

    def __init__(self, makers: Sequence[MakeWorker]) -> None:
        self._makers, self._functions = makers, [make() for make in makers]

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        return {index: self._functions[index](request) for index, request in requests.items()}

    def replace(self, index: int) -> None:
        self._functions[index] = self._makers[index]()

    def close(self) -> None:
        """Call the method `close` of the functions that have one, and drop all functions."""
        for function in self._functions:
            if (close := getattr(function, "close", None)) is not None:
                close()
        self._functions = []


class Background:
    """A thread that runs submitted functions in their order. It starts with the first one; Python can exit while it runs."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._unsettled = False

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Run `work()` in the thread, after all earlier work, and return the future of its result."""
        future = Future[ResultT]()
        if self._thread is None:
            thread = threading.Thread(target=_work_off, args=(self._queue,), daemon=True)
            thread.start()
            self._thread = thread
        self._unsettled = True
        self._queue.put(partial(_finish, work, future))
        return future

    def settle(self) -> None:
        """Wait until all submitted work is done. Errors stay in their futures.

        A call from the background thread itself returns immediately.
        """
        if self._unsettled and threading.current_thread() is not self._thread:
            marker = Future[None]()  # Ctrl-C inside `submit` may have come before the last work was put into the queue
            self._queue.put(partial(marker.set_result, None))
            wait([marker])
            self._unsettled = False

    def close(self) -> None:
        """Let the thread end after the work that was submitted so far. This call does not wait for it."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread = None


def _work_off(queue: SimpleQueue[Callable[[], object] | None]) -> None:
    use_one_thread_here()
    while (piece := queue.get()) is not None:
        piece()
        # frees the result, which may be large
        del piece


def _finish(work: Callable[[], ResultT], future: Future[ResultT]) -> None:
    """Store the result of `work()` in its future, or its exception."""
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
