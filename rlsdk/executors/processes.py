"""Work done in processes of this machine that stay alive between pieces."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from rlsdk.errors import WorkError
from rlsdk.parcels import Outbox
from rlsdk.workers import Dead, Failure, Twice, Worker, end_with_parent, spread

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Processes:
    """An executor with `workers` processes, started when there is work; `work` and its items must be picklable.

    A process that dies is replaced and its piece tried once more. On Ctrl-C the pieces in work are asked to stop (SIGTERM)
    and waited for, the others are not begun; a second Ctrl-C ends the processes at once. They do not see the terminal's
    own Ctrl-C, and end a few seconds after this process.
    """

    def __init__(self, workers: int) -> None:
        self.count = workers
        self._workers: list[Worker] = []
        self._outbox = Outbox()

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        if not items:
            return []
        context = multiprocessing.get_context("spawn")
        for number in range(len(self._workers), min(self.count, len(items))):
            self._workers.append(Worker(context, _serve, None, f"worker {number}", daemon=False))
        requests = [("call", work, item) for item in self._outbox.pack(items)]
        try:
            return spread(self._workers, requests, timeout=math.inf, accept=_accept, replaced=lambda: None)
        except Twice as error:
            self._end()
            raise WorkError(str(error)) from None
        except KeyboardInterrupt:
            self._stop()
            raise
        except BaseException:
            self._end()
            raise

    def _stop(self) -> None:
        """Ask every process to stop, and wait for it to have done so."""
        try:
            for worker in self._workers:
                worker.process.terminate()
            for worker in self._workers:
                with contextlib.suppress(Dead):
                    worker.receive(math.inf)
        finally:
            self._end()

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(5.0)
        self._end()
        self._outbox.close()

    def _end(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers = []


def _accept(answer: Any) -> None:
    if isinstance(answer, Failure):
        raise (answer.kind or WorkError)(f"{answer.message}\n--- in its process ---\n{answer.trace}")


def _serve(pipe: Connection, _: None) -> None:
    """Answer ("call", (work, item)) until the pipe closes."""
    if hasattr(os, "setsid"):
        os.setsid()  # the terminal's Ctrl-C goes to the parent alone, which says what becomes of the work
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
