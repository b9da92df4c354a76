"""Workers that store state between requests: functions in this process, or one process for each worker."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

from rlsdk.errors import WorkError
from rlsdk.executors.pieces import traced
from rlsdk.executors.shared_memory import SharedArrays
from rlsdk.executors.workers import (
    Failure,
    Worker,
    WorkerDied,
    clean_up_undisturbed,
    end_all,
    end_with_parent,
    obey_parent_only,
    reply,
)

CLOSING = 60.0
"""Seconds that processes have to close what they made."""
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

    def __init__(self, makers: Sequence[Maker]) -> None:
        context = multiprocessing.get_context("spawn")
        self._shared = SharedArrays()  # first, so that the processes share the tracker that cleans up after a crash
        self._workers = [Worker(context, serve, make, f"worker {i}") for i, make in enumerate(makers)]
        self._owed: set[int] = set()
        """The indices of workers whose last answer has not been received, for example after Ctrl-C."""

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def ask(self, requests: Mapping[int, object]) -> dict[int, Any]:
        self._answers(self._owed.copy())  # receive old answers first: `pack` below overwrites the shared memory
        for index, request in zip(requests, self._shared.pack(list(requests.values())), strict=True):
            self._owed.add(index)
            self._workers[index].send("ask", request)
        answers = self._answers(set(requests))
        for index in requests:
            if isinstance(failure := answers[index], Failure):
                raise traced((failure.kind or WorkError)(failure.message), failure.trace)
        return answers

    def _answers(self, waiting: set[int]) -> dict[int, Any]:
        """Wait for the answers of these workers, and return index -> answer; a worker that died has a `WorkerDied`."""
        answers: dict[int, Any] = {}
        while waiting:
            ready = set(wait([s for i in waiting for s in (self._workers[i].pipe, self._workers[i].process.sentinel)]))
            for index in sorted(waiting):
                worker = self._workers[index]
                if worker.pipe in ready or worker.process.sentinel in ready:
                    try:
                        answers[index] = worker.receive(time.monotonic())
                    except WorkerDied as death:
                        answers[index] = death
                    waiting.discard(index)
                    self._owed.discard(index)
        return answers

    def replace(self, index: int) -> None:
        self._workers[index].kill()
        self._workers[index].start()
        self._owed.discard(index)

    def close(self) -> None:
        """Let each process close its function, and end it; a process that needs more than `CLOSING` seconds is killed."""
        for worker in self._workers:
            worker.send("end")
        end_all(self._workers, CLOSING, owed=bool(self._owed))
        self._workers = []
        self._shared.close()


def serve(pipe: Connection, make: Maker) -> None:
    """Answer requests ("ask", (request,)) until a request of another name comes or the pipe closes."""
    function: Callable[[Any], object] | None = None
    if hasattr(os, "setsid"):
        os.setsid()
    obey_parent_only()
    end_with_parent()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):  # the parent is gone, or ends this process
        while True:
            name, arguments = pipe.recv()
            if name != "ask":
                break
            try:
                function = function or make()
                answer = function(*arguments)
            except Exception as error:
                answer = Failure.of(error)
            reply(pipe, answer)
    clean_up_undisturbed()
    _close(function)


def _close(function: object) -> None:
    close = getattr(function, "close", None)
    if close is not None:
        close()
