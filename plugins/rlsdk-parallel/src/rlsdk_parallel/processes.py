"""Workers that store state between requests, and those that are processes on this machine."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from rlsdk.errors import EnvironmentFault
from rlsdk.interfaces import Executor
from rlsdk_parallel.shared_memory import SharedArrays
from rlsdk_parallel.workers import (
    End,
    Worker,
    WorkerDied,
    attempt,
    clean_up_undisturbed,
    end_all,
    end_with_parent,
    obey_parent_only,
    reply,
    result_of,
    spread,
)

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


CLOSING = 60.0
"""Seconds that processes have to close what they made."""
MakeWorker: TypeAlias = Callable[[], Callable[[Any], object]]
"""A function that makes the function which answers the requests of a worker."""


class StatefulWorkers(Protocol):
    """Workers that run until they are closed. Each has a separate function, which may store state between requests."""

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        """Send one request to each of some workers, which work in parallel, and return their answers by worker number.

        A worker that died has a `rlsdk_parallel.workers.WorkerDied` instead of an answer. An exception of a function
        is raised in the calling process. Large arrays in fields of `attrs` records are passed by reference, and stored
        once if several requests contain them.
        """
        ...

    def replace(self, index: int) -> None:
        """Start a new worker in place of one that died. It calls its maker again for a new function, without the
        earlier state."""

    def close(self) -> None:
        """End the workers."""


@runtime_checkable
class HasStatefulWorkers(Executor, Protocol):
    """An executor whose workers can store state between requests, which parallel collecting needs."""

    def stateful_workers(self, makers: Sequence[MakeWorker]) -> StatefulWorkers:
        """Start one worker for each of the makers, which must be picklable.

        The worker calls its maker, which returns the function that answers requests. Workers end when the calling
        process ends.
        """
        ...


class StatefulProcesses:
    """Stateful workers, one process each.

    The processes do not receive the Ctrl-C of the terminal. They end a few seconds after this process.
    """

    def __init__(
        self,
        makers: Sequence[MakeWorker],
        context: BaseContext | None = None,
        labels: Sequence[str] = (),
        timeout: float = math.inf,
        *,
        apart: bool = True,
    ) -> None:
        """Start the processes with `context`; `labels` are their names in messages.

        A process that does not answer for `timeout` seconds counts as dead. With `apart`, each is in a session of its own.
        """
        self._context, self._answering = (
            context or multiprocessing.get_context("spawn"),
            serve_apart if apart else serve,
        )
        self.timeout, self.workers = timeout, list[Worker]()
        self._shared = SharedArrays()  # first, so that the processes share the tracker that cleans up after a crash
        labels = labels or [f"worker {i}" for i in range(len(makers))]
        for make, label in zip(makers, labels, strict=True):
            self.add(make, label)

    def add(self, make: MakeWorker, label: str, *, daemon: bool = True) -> Worker:
        """Start one more process. One that is not a daemon may start processes itself."""
        worker = Worker(self._context, self._answering, make, label, daemon=daemon)
        self.workers.append(worker)
        return worker

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

    def spread(
        self, requests: Sequence[object], replaced: Callable[[], None], workers: Sequence[Worker] = ()
    ) -> list[Any]:
        """Send each of the packed requests to the next process that is free, of `workers` or of all.

        See `rlsdk_parallel.workers.spread`, also for `replaced`. The result has what their functions returned.

        Raises:
            WorkError: a request ended its process twice; otherwise what a function raised.
        """
        return spread(workers or self.workers, requests, self.timeout, accept=result_of, replaced=replaced)

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


def serve(pipe: Connection, make: MakeWorker) -> None:
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


def serve_apart(pipe: Connection, make: MakeWorker) -> None:
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
