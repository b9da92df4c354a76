"""Work done in processes of this machine that stay alive between items."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

from rlsdk.errors import WorkError
from rlsdk.executors.shared_memory import SharedArrays
from rlsdk.executors.workers import Failure, RepeatedFailure, Worker, WorkerDied, end_with_parent, spread

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Processes:
    """An executor with `workers` processes, started when there is work; `work` and its items must be picklable.

    A process that dies is replaced and its item tried once more. On Ctrl-C the running items get SIGTERM
    and waited for, the others are not begun; a second Ctrl-C ends the processes at once. They do not see the terminal's
    own Ctrl-C, and end a few seconds after this process.
    """

    def __init__(self, workers: int) -> None:
        self.count = workers
        self._workers: list[Worker] = []
        self._shared = SharedArrays()

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        context = multiprocessing.get_context("spawn")
        for number in range(len(self._workers), min(self.count, len(items))):
            self._workers.append(Worker(context, _serve, None, f"worker {number}", daemon=False))
        requests = [("call", work, item) for item in self._shared.pack(items)]
        try:
            return spread(self._workers, requests, timeout=math.inf, accept=_accept, replaced=lambda: None)
        except RepeatedFailure as error:
            self._end()
            raise WorkError(str(error)) from None
        except KeyboardInterrupt:
            self._stop()
            raise
        except BaseException:
            self._end()
            raise

    def _stop(self) -> None:
        """Stop every process, and wait until it has ended."""
        try:
            for worker in self._workers:
                worker.process.terminate()
            for worker in self._workers:
                with contextlib.suppress(WorkerDied):
                    worker.receive(math.inf)
        finally:
            self._end()

    def close(self) -> None:
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


def _accept(answer: object) -> None:
    if isinstance(answer, Failure):
        raise (answer.kind or WorkError)(f"{answer.message}\n--- in its process ---\n{answer.trace}")


def _serve(pipe: Connection, _: None) -> None:
    """Answer ("call", (work, item)) until the pipe closes."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal's Ctrl-C goes to the parent alone, which decides whether the work continues
    end_with_parent()  # a run in work saves first
    while True:
        try:
            _name, (work, item) = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            answer = work(item)
        except Exception as error:
            answer = Failure.of(error)
        try:
            pipe.send(answer)
        except OSError:  # the parent is gone
            break
