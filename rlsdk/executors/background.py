"""`Background` runs functions in a thread, one after another, while the caller continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from rlsdk.runtime.threads import use_one_thread_here

ResultT = TypeVar("ResultT")


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
            wait([marker])
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
