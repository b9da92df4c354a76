"""An executor that uses a `concurrent.futures.Executor`: of the standard library, loky, dask.distributed or mpi4py."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from concurrent.futures import Executor as Pool
from importlib import import_module
from typing import Any, TypeVar

import attrs

from rlsdk.errors import RlsdkError, WorkError, message_of, raised

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ErrorT = TypeVar("ErrorT", bound=Exception)


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
        self._submitting = Submitting(lambda work, item: self.map(work, [item])[0], workers)
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


PLAIN = (str, bytes, int, float, bool, type(None))
CREATED_ELSEWHERE = "--- in its process ---"


def traced(error: ErrorT, trace: str) -> ErrorT:
    """Return `error` with a note that holds `trace`, the traceback from the process where it was raised.

    Python prints the note. The message of the error is unchanged.
    """
    if trace:
        error.add_note(f"{CREATED_ELSEWHERE}\n{trace}")
    return error


@attrs.frozen
class Raised:
    """An exception as text and plain values. Every process can unpickle these; the exception itself perhaps not."""

    module: str
    name: str
    arguments: tuple[object, ...]
    message: str
    trace: str
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(error: Exception) -> Raised:
        """Return the class, arguments, message, traceback and notes of `error`, to raise it in another process."""
        kind, trace = type(error), "".join(traceback.format_exception(error)).rstrip()
        arguments, notes = _arguments(error), tuple(map(str, getattr(error, "__notes__", ())))
        return Raised(kind.__module__, kind.__qualname__, arguments, message_of(error), trace, notes)

    def error(self) -> Exception:
        """Return the exception. If its class cannot be imported or created here, return a `WorkError` that names it."""
        made = self._made()
        if made is None:
            made = WorkError(f"the work raised {self.name}: {self.message}")
        for note in self.notes:
            made.add_note(note)
        return traced(made, self.trace)

    def _made(self) -> Exception | None:
        try:
            kind: object = import_module(self.module)
            for part in self.name.split("."):
                kind = getattr(kind, part)
            made = kind(*self.arguments) if isinstance(kind, type) and issubclass(kind, Exception) else None
            return made if made is not None and str(made) == self.message else None
        except Exception:  # a class of a third party: its module and its constructor may raise anything
            return None


def _arguments(error: Exception) -> tuple[object, ...]:
    """Return the arguments that create an equal error, if they are plain values; else only the message."""
    try:
        reduced: Any = error.__reduce__()
        kind, arguments = reduced[:2]
    except Exception:
        return (message_of(error),)
    if kind is type(error) and isinstance(arguments, tuple) and all(isinstance(a, PLAIN) for a in arguments):
        return arguments
    return (message_of(error),)


def attempt(work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT | Raised:
    """Return `work(item)`, or a `Raised` if it raised an exception."""
    try:
        return work(item)
    except Exception as error:
        return Raised.of(error)


def result_of(answer: ResultT | Raised) -> ResultT:
    """Return `answer`, the result of `attempt`; raise the exception if it is a `Raised`."""
    if isinstance(answer, Raised):
        raise answer.error()
    return answer


def unsendable(what: str, error: BaseException) -> WorkError:
    """Return the error to raise when `what` cannot be pickled; `error` is the exception from pickling."""
    return WorkError(
        f"{what} cannot be sent to another process: it {raised(error, 'pickling')}; give a function that a module holds,"
        " and items of plain values, arrays and records"
    )


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
