"""An executor that runs work in processes on this machine. The processes stay alive between items."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rlsdk.errors import WorkError
from rlsdk.executors.pieces import attempt, result_of, unsendable
from rlsdk.executors.shared_memory import SharedArrays
from rlsdk.executors.stateful import StatefulProcesses
from rlsdk.executors.workers import (
    RepeatedFailure,
    Worker,
    WorkerDied,
    end_with_parent,
    forget_terminal_signals,
    spread,
)

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


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
        self._workers: list[Worker] = []
        self._shared = SharedArrays()
        self._submitted = _Submitted(self)

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        for number in range(len(self._workers), min(self.count, len(items))):
            self._workers.append(started(number))
        requests = [("call", work, item) for item in self._shared.pack(items)]
        try:
            return spread(self._workers, requests, timeout=math.inf, accept=_accept, replaced=self.count_repeated)
        except RepeatedFailure as error:
            self._end()
            raise WorkError(str(error)) from None
        except _Unsendable as error:
            self._end()
            raise unsendable("the work or an item", error.cause) from None
        except KeyboardInterrupt:
            self._stop()
            raise
        except BaseException:
            self._end()
            raise

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` in a process that `map` does not use, and return the future of its result."""
        return self._submitted.submit(work, item)

    def count_repeated(self) -> None:
        """Count an item that is tried once more because its process died."""
        self.repeated += 1

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulProcesses:
        """See `rlsdk.interfaces.HasStatefulWorkers`. `map` does not use these processes."""
        return StatefulProcesses(makers)

    def _stop(self) -> None:
        """Send SIGTERM to every process, wait until it answers or dies, and end it."""
        try:
            for worker in self._workers:
                worker.process.terminate()
            for worker in self._workers:
                with contextlib.suppress(WorkerDied):
                    worker.receive(math.inf)
        finally:
            self._end()

    def close(self) -> None:
        self._submitted.close()
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(5.0)
        self._end()
        self._shared.close()

    def _end(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers = []


def _accept(answer: Any) -> None:
    result_of(answer)


class _Unsendable(Exception):  # noqa: N818  # named after the event
    """A request cannot be pickled; `cause` is the exception from pickling."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _PieceWorker(Worker):
    """A process that calls functions with items."""

    def send(self, request: str, *arguments: object) -> None:
        """See `Worker.send`; raises `_Unsendable` if the arguments cannot be pickled."""
        try:
            super().send(request, *arguments)
        except OSError:
            raise
        except Exception as error:
            raise _Unsendable(error) from error


class _Submitted:
    """Runs submitted items. Each running item has one thread and one process; at most `executor.count` items run."""

    def __init__(self, executor: Processes) -> None:
        self.executor = executor
        self._threads: ThreadPoolExecutor | None = None
        self._idle = SimpleQueue[Worker]()
        self._all: list[Worker] = []
        self._closed = False

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.executor.count, thread_name_prefix="rlsdk-submitted")
        return self._threads.submit(self._done, work, item)

    def _done(self, work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = started(len(self._all))
            self._all.append(worker)
        try:
            return self._answer(worker, work, item)
        finally:
            self._idle.put(worker)

    def _answer(self, worker: Worker, work: Callable[[ItemT], ResultT], item: ItemT) -> ResultT:
        """Return the result of the worker. If the item ends its process, it is tried once more in a new process."""
        for last in (False, True):
            try:
                worker.send("call", work, item)
                result: ResultT = result_of(worker.receive(math.inf))
                return result
            except _Unsendable as error:
                raise unsendable("the work or the item", error.cause) from None
            except WorkerDied as reason:
                if self._closed:
                    raise WorkError("the executor was closed") from None
                worker.kill()
                worker.start()
                if last:
                    raise WorkError(f"the item ended its process twice; the process {reason}") from None
                self.executor.count_repeated()
        raise AssertionError  # the loop returns or raises

    def close(self) -> None:
        """End the processes. The results of running items are lost."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._all:
            worker.process.kill()


def started(number: int) -> Worker:
    """Start a process that waits for work; `number` is its number in messages."""
    shown = warnings.formatwarning
    ours = shown if shown.__module__.startswith("rlsdk.") else None  # a user's function may not be importable there
    return _PieceWorker(multiprocessing.get_context("spawn"), _serve, ours, f"worker {number}", daemon=False)


def _serve(pipe: Connection, shown: Callable[..., str] | None) -> None:
    """Answer requests ("call", (work, item)) until the pipe closes; `shown` formats warnings, None is Python's format."""
    if shown is not None:
        warnings.formatwarning = shown
    if hasattr(os, "setsid"):
        os.setsid()  # only the parent gets the terminal's Ctrl-C; it decides whether the work continues
    forget_terminal_signals()
    end_with_parent()  # SIGTERM comes first, so that a running training can save
    while True:
        try:
            _name, (work, item) = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            _send(pipe, attempt(work, item))
        except OSError:  # the parent is gone
            break


def _send(pipe: Connection, answer: Any) -> None:
    """Send `answer`. If it cannot be pickled, send the error."""
    try:
        pipe.send(answer)
    except OSError:
        raise
    except Exception as error:
        pipe.send(attempt(_refuse, unsendable("the result", error)))


def _refuse(error: WorkError) -> None:
    raise error
