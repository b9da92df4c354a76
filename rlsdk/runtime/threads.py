"""Limits on the number of threads that torch and numpy's linear algebra use.

One thread is best for small networks: sharing a 64 x 64 matrix product with a second thread takes several times as long as the
product itself. It takes ten times longer still if other processes use that core.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """The thread pools of the libraries that are loaded now. Finding them takes milliseconds, so the result is cached."""
    return ThreadpoolController()


def affordable(threads: int | None) -> int | None:
    """The given number of threads, but at most the number of cores: further threads would only wait. Warns if it is reduced."""
    if threads is None or threads <= (cores := os.cpu_count() or threads):
        return threads
    warnings.warn(f"{threads} threads reduced to {cores}: the machine has {cores} cores", stacklevel=4)
    return cores


def use_one_thread_here() -> None:
    """Make torch compute with one thread for calls from the current Python thread.

    Otherwise OpenMP starts a second team of threads for the current thread. If two teams have more threads than there are
    cores, OpenMP threads sleep between operations, and the main thread's computations take twice as long.
    """
    torch.get_num_threads()  # the first call in a Python thread sets its number of threads, so the limit must come after it
    _libraries().limit(limits=1, user_api="openmp")


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Use `threads` threads inside the block and restore the previous number afterwards; None changes nothing."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _libraries().limit(limits=threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
