"""Closing a pool of futures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rlsdk_parallel.executors import FuturesExecutor


class Noted(ThreadPoolExecutor):
    """A pool that records how it was shut down."""

    waited: bool | None = None

    def shutdown(self, wait: bool = True, **options: Any) -> None:
        self.waited = wait
        super().shutdown(wait, **options)


def executor_of(pool: Noted) -> FuturesExecutor:
    return FuturesExecutor(lambda: pool, 2, pool)


def test_close_waits_for_a_pool_that_does_nothing() -> None:
    pool = Noted(2)
    executor = executor_of(pool)
    assert executor.map(abs, [-1, -2, -3]) == [1, 2, 3]
    executor.close()
    assert pool.waited is True


def test_close_does_not_wait_for_a_piece_that_runs() -> None:
    pool, hold, begun = Noted(2), threading.Event(), threading.Event()
    executor = executor_of(pool)

    def work(item: int) -> None:
        if item == 0:
            begun.set()
            hold.wait(60)
        else:
            begun.wait(60)
            raise ValueError("the other piece")

    with pytest.raises(ValueError, match="the other piece"):
        executor.map(work, [0, 1])
    executor.close()
    assert pool.waited is False
    hold.set()
