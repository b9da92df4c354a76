"""Work in the background: one piece after another, in a thread, while the caller continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Background:
    """A thread that begins with the first piece of work. It does not keep the process alive."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """`work()`, after all that was submitted before."""
        future = Future[ResultT]()
        if self._thread is None:
            thread = threading.Thread(target=_work_off, args=(self._queue,), daemon=True)
            thread.start()
            self._thread = thread
        self._last = future
        self._queue.put((work, future))
        return future

    def settle(self) -> None:
        """Return once all that was submitted is done, at once in the thread itself; errors stay in their futures."""
        if self._last is not None and threading.current_thread() is not self._thread:
            behind = Future[None]()  # not `_last`: Ctrl-C may have kept it from the queue
            self._queue.put((lambda: None, behind))
            wait([behind])
            self._last = None

    def close(self) -> None:
        """The thread ends after what was submitted."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread = None


def _work_off(queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (item := queue.get()) is not None:
        work, future = item
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del item, work, future  # results may be large
