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


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """`threads` inside the block, and what it was before afterwards; None leaves everything alone.

    More than there are cores only wait for one another: they are reduced, with a warning.
    """
    if threads is None:
        yield
        return
    before, used = torch.get_num_threads(), min(threads, os.cpu_count() or threads)
    if used < threads:
        warnings.warn(f"{threads} threads reduced to {used}: the machine has {used} cores", stacklevel=4)
    torch.set_num_threads(used)
    try:
        with _libraries().limit(limits=used, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
