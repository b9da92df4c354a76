"""Reuses the memory of large arrays: new memory pages from the system cost more than the arithmetic of narrow layers.

An array is reused when nothing refers to it any more, neither a view nor a tensor.
"""

from __future__ import annotations

import math
import sys
from threading import local

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGE = 2**17
"""The smallest number of entries of a reused array. The C library reuses the memory of smaller ones."""
MOST = 2**25
"""The largest number of entries of all arrays in a pool: 128 MiB of float32."""


class ArrayPool:
    """Provides uninitialised float32 arrays to one thread. Other threads may use the arrays that it returned."""

    def __init__(self) -> None:
        self._arrays: dict[int, list[NDArray[np.float32]]] = {}
        """Number of entries -> arrays."""
        self._numbers = 0

    def empty(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an uninitialised array [*shape]."""
        size = math.prod(shape)
        if size < LARGE or _FREE is None:
            return np.empty(shape, np.float32)
        same = self._arrays.setdefault(size, [])
        for i in range(len(same)):
            if sys.getrefcount(same[i]) == _FREE:
                return same[i].reshape(shape)
        made = np.empty(size, np.float32)
        if size <= MOST:
            if self._numbers + size > MOST:
                self._arrays, self._numbers = {}, 0  # arrays in use exist until their last reference is gone
            self._arrays.setdefault(size, []).append(made)
            self._numbers += size
        return made.reshape(shape)


def _references() -> int | None:
    """The value of `sys.getrefcount` for an array that only a list holds; None if Python does not count references exactly."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    arrays = [np.empty(1)]
    return sys.getrefcount(arrays[0])


_FREE = _references()
_memory = local()


def empty_like(rows: Tensor, columns: int) -> Tensor | None:
    """Return an uninitialised tensor [N, columns] for a result computed from `rows` [N, ..] on the CPU; None: torch
    allocates it."""
    if rows.ndim != 2 or not rows.is_cpu or rows.dtype is not torch.float32:
        return None
    if not hasattr(_memory, "pool"):
        _memory.pool = ArrayPool()
    pool: ArrayPool = _memory.pool
    return torch.from_numpy(pool.empty((rows.shape[0], columns)))
