"""An executor that runs work in processes on this machine. The processes stay alive between items."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from functools import partial
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from rlsdk.errors import EnvironmentFault, WorkError
from rlsdk.executors.futures import Submitting, attempt, result_of
from rlsdk.executors.shared_memory import SharedArrays
from rlsdk.executors.workers import (
    End,
    RepeatedFailure,
    Worker,
    WorkerDied,
    clean_up_undisturbed,
    end_all,
    end_with_parent,
    obey_parent_only,
    reply,
    spread,
)
from rlsdk.runtime.process import use_one_thread_here

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
        self._pool = StatefulProcesses([])
        """The processes of `map`. Their functions have no state, but are sent to and waited for in the same way."""
        self._submitting = Submitting(self._run, workers)
        self._idle, self._submitted, self._closed = SimpleQueue[Worker](), list[Worker](), False
        """Those processes of submitted items that are free, all of them, and whether they were ended."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        workers = self._pool.workers
        for number in range(len(workers), min(self.count, len(items))):
            workers.append(_started(number))
        try:
            return self._answers(workers, [(work, item) for item in self._pool.pack(items)])
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
            worker = _started(len(self._submitted))
            self._submitted.append(worker)
        try:
            result: ResultT = self._answers([worker], [(work, item)])[0]
            return result
        finally:
            if worker.process.is_alive():
                self._idle.put(worker)

    def _answers(self, workers: Sequence[Worker], requests: Sequence[object]) -> list[Any]:
        try:
            return spread(workers, requests, timeout=math.inf, accept=result_of, replaced=self._count_repeated)
        except RepeatedFailure as error:
            raise WorkError(str(error)) from None

    def _count_repeated(self) -> None:
        if self._closed:  # `close` ended the process; a new one would outlive the executor
            raise WorkError("the executor was closed")
        self.repeated += 1

    def stateful_workers(self, makers: Sequence[Callable[[], Callable[[Any], object]]]) -> StatefulProcesses:
        """See `rlsdk.interfaces.HasStatefulWorkers`. `map` does not use these processes."""
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
        for worker in self._submitted:
            worker.process.kill()
        self._pool.close(ENDING)


def _started(number: int) -> Worker:
    """Start a process that runs items of work; `number` is its number in messages."""
    shown = warnings.formatwarning
    ours = shown if shown.__module__.startswith("rlsdk.") else None  # a user's function may not be importable there
    make = partial(_make_piecework, ours)
    # not a daemon: items are trainings, which may start processes for their environments
    return Worker(multiprocessing.get_context("spawn"), serve_apart, make, f"worker {number}", daemon=False)


def _make_piecework(shown: Callable[..., str] | None) -> Callable[[Any], object]:
    """The function of a process that runs items. `shown` formats its warnings, None is Python's format."""
    if shown is not None:
        warnings.formatwarning = shown
    return lambda request: request[0](request[1])


CLOSING, ENDING = 60.0, 5.0
"""Seconds that processes have to close what they made; and to end, without anything to close."""
Maker: TypeAlias = Callable[[], Callable[[Any], object]]
"""A function that makes the function which answers the requests of a worker."""


class StatefulHere:
    """Stateful workers that are functions in this process, called one after another."""

    def __init__(self, makers: Sequence[Maker]) -> None:
        self._makers, self._functions = makers, [make() for make in makers]

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        return {index: self._functions[index](request) for index, request in requests.items()}

    def replace(self, index: int) -> None:
        self._functions[index] = self._makers[index]()

    def close(self) -> None:
        """Call the method `close` of the functions that have one, and drop all functions."""
        for function in self._functions:
            _close(function)
        self._functions = []


class StatefulProcesses:
    """Stateful workers, one process each.

    The processes do not receive the Ctrl-C of the terminal. They end a few seconds after this process.
    """

    def __init__(
        self,
        makers: Sequence[Maker],
        context: Any = None,
        labels: Sequence[str] = (),
        timeout: float = math.inf,
        *,
        apart: bool = True,
    ) -> None:
        """Start the processes with `context`; `labels` are their names in messages.

        A process that does not answer for `timeout` seconds counts as dead. With `apart`, each is in a session of its own.
        """
        context, self.timeout = context or multiprocessing.get_context("spawn"), timeout
        self._shared = SharedArrays()  # first, so that the processes share the tracker that cleans up after a crash
        labels = labels or [f"worker {i}" for i in range(len(makers))]
        answering = serve_apart if apart else serve
        self.workers = [Worker(context, answering, make, label) for make, label in zip(makers, labels, strict=True)]

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self.workers]

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        # all are sent before the first answer is waited for, so that the workers work at the same time
        packed = self.pack(list(requests.values()))
        for index, request in zip(requests, packed, strict=True):
            self.workers[index].send(request)
        return {index: result_of(answer) for index, answer in self._received(requests).items()}

    def spread(self, requests: Sequence[object], replaced: Callable[[], None]) -> list[Any]:
        """Send each of the packed requests to the next process that is free; see `rlsdk.executors.workers.spread`."""
        return spread(self.workers, requests, timeout=self.timeout, accept=result_of, replaced=replaced)

    def pack(self, requests: Sequence[object]) -> list[object]:
        """Put large arrays of requests into shared memory; see `SharedArrays.pack`."""
        self._settle()  # those workers may still read the memory, which is overwritten
        return self._shared.pack(requests)

    def _settle(self) -> None:
        """Receive the answers that were not waited for, as after Ctrl-C, so that later answers belong to later requests."""
        self._received([i for i, worker in enumerate(self.workers) if worker.owed])

    def _received(self, indices: Iterable[int]) -> dict[int, Any]:
        """The answers of some workers: what `attempt` returns, or a `WorkerDied`."""
        deadline, answers = time.monotonic() + self.timeout, dict[int, Any]()
        for index in indices:  # in this order, not in that of the answers: the slowest is waited for in any case
            try:
                answers[index] = self.workers[index].receive(deadline, self.timeout)
            except WorkerDied as death:
                answers[index] = death
        return answers

    def replace(self, index: int) -> None:
        self.workers[index].kill()
        self.workers[index].start()

    def close(self, seconds: float = CLOSING) -> None:
        """Let each process close its function, and end it; a process that needs more than `seconds` is killed."""
        owed = any(worker.owed for worker in self.workers)  # before `End` is sent, which gets no answer
        for worker in self.workers:
            worker.send(End())
        end_all(self.workers, seconds, owed=owed)
        self.end()

    def end(self) -> None:
        """End the processes at once."""
        for worker in self.workers:
            worker.kill()
        self.workers = []
        self._shared.close()


def serve(pipe: Connection, make: Maker) -> None:
    """Answer requests with the function that `make()` returns, until an `End` comes or the pipe closes.

    The function is made with the first request, so that an exception of `make` is the answer to it.
    """
    function: Callable[[Any], object] | None = None

    def answered(request: object) -> object:
        nonlocal function
        function = function or make()
        return function(request)

    obey_parent_only()
    end_with_parent()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):  # the parent is gone, or ends this process
        while not isinstance(request := pipe.recv(), End):
            reply(pipe, attempt(answered, request))
    clean_up_undisturbed()
    try:
        _close(function)
    except EnvironmentFault as fault:  # the parent no longer reads answers, so this can only be a warning
        warnings.warn(str(fault), RuntimeWarning, stacklevel=2)


def serve_apart(pipe: Connection, make: Maker) -> None:
    """`serve` in a session of its own, so that signals to the group of the parent reach only the parent.

    Not for environments that are stepped together: Linux shares its cores among sessions, so each of the short waits of a
    step would take longer on a busy machine.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    serve(pipe, make)


def _close(function: object) -> None:
    close = getattr(function, "close", None)
    if close is not None:
        close()


class Background:
    """A thread that runs submitted functions in their order. It starts with the first one; Python can exit while it runs."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
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
        self._queue.put((work, future))
        return future

    def settle(self) -> None:
        """Wait until all submitted work is done. Errors stay in their futures.

        A call from the background thread itself returns immediately.
        """
        if self._unsettled and threading.current_thread() is not self._thread:
            marker = Future[None]()  # Ctrl-C inside `submit` may have come before the last work was put into the queue
            self._queue.put((lambda: None, marker))
            wait_for_futures([marker])
            self._unsettled = False

    def close(self) -> None:
        """Let the thread end after the work that was submitted so far. This call does not wait for it."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread = None


def _work_off(queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    use_one_thread_here()
    while (item := queue.get()) is not None:
        work, future = item
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del item, work, future  # frees the result, which may be large
