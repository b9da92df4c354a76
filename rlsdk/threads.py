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
    """What was asked for, or with a warning as many as there are cores: more only wait for one another."""
    if threads is None or threads <= (cores := os.cpu_count() or threads):
        return threads
    warnings.warn(f"{threads} threads reduced to {cores}: the machine has {cores} cores", stacklevel=4)
    return cores


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """`threads` inside the block, and what it was before afterwards; None leaves everything alone."""
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
