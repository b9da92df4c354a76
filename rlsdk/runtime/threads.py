"""How many threads torch and numpy's linear algebra use, limited together.

Small networks want one: handing a product of 64 x 64 to a second thread costs several times what the product does, and an
order of magnitude more where other processes want that core.
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
    """Those loaded now; looking for them takes milliseconds."""
    return ThreadpoolController()


def affordable(threads: int | None) -> int | None:
    """The number given, at most the number of cores (then with a warning): more threads only wait for one another."""
    if threads is None or threads <= (cores := os.cpu_count() or threads):
        return threads
    warnings.warn(f"{threads} threads reduced to {cores}: the machine has {cores} cores", stacklevel=4)
    return cores


def use_one_thread_here() -> None:
    """Torch computes with one thread where this thread calls it.

    Otherwise it gets a second team of threads. When two teams have more threads than there are cores, those of OpenMP sleep
    between operations, and the caller's own become half as fast.
    """
    torch.get_num_threads()  # the first call in a thread sets its number
    _libraries().limit(limits=1, user_api="openmp")


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Use `threads` inside the block and restore the number afterwards; None changes nothing."""
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
