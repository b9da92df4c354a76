"""Sends large arrays to other processes through shared memory instead of the pipe."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
SHARED = "/dev/shm"  # noqa: S108  # where Linux keeps it
LARGE = 4096
"""Bytes from which an array goes through shared memory; smaller ones are as quick through the pipe."""
FIRST = 1 << 20
"""Bytes of the first block. It exists before the processes do, so that they share the tracker which cleans up after a crash."""


class Layout:
    """Places arrays one after another in a block of memory; without a block it only counts."""

    def __init__(self, block: Any = None) -> None:
        self.block, self.used = block, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The next array."""
        start, kind = self.used, np.dtype(dtype)
        self.used += -(-math.prod(shape) * kind.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0, kind) if self.block is None else np.ndarray(shape, kind, self.block, start)


class SharedArray:
    """An array in shared memory. Where it is unpickled the array itself appears, as a read-only view."""

    def __init__(self, block: str, start: int, array: Any) -> None:
        self.place = block, start, array.shape, array.dtype.str

    def __reduce__(self) -> tuple[object, ...]:
        return _opened, self.place


class SharedArrays:
    """The memory of one pool of processes; what it holds is valid until `pack` is called again.

    Where there is no shared memory, or too little (as in some containers), arrays go through the pipe.
    """

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None
        self._allocate(FIRST)
        self._usable = self._memory is not None

    def _allocate(self, size: int) -> None:
        self.close()
        with contextlib.suppress(OSError):
            if _available() >= size:
                self._memory = SharedMemory(create=True, size=size)
                self._free = weakref.finalize(self, _remove, self._memory, os.getpid())

    def pack(self, items: Sequence[Any]) -> list[Any]:
        """The items ready to be sent: large arrays in fields of attrs records are in shared memory, once if items share them.

        An item may be a list of records.
        """
        if items and all(isinstance(item, list) for item in items):
            packed = iter(self.pack([record for group in items for record in group]))
            return [[next(packed) for _ in group] for group in items]
        found = [_large(item) for item in items]
        arrays = {id(value): value for large in found for value in large.values()}
        needed = Layout()
        for value in arrays.values():
            needed(value.shape, value.dtype)
        if self._usable and needed.used > (0 if self._memory is None else self._memory.size):
            self._allocate(2 * needed.used)
        if self._memory is None:
            return list(items)
        layout, shared = Layout(self._memory.buf), {}
        for key, value in arrays.items():
            shared[key] = SharedArray(self._memory.name, layout.used, value)
            layout(value.shape, value.dtype)[...] = value
        return [
            attrs.evolve(item, **{name: shared[id(value)] for name, value in large.items()}) if large else item
            for item, large in zip(items, found, strict=True)
        ]

    def close(self) -> None:
        """Give the memory back."""
        if self._memory is not None:
            self._free()
            self._memory = None


def _available() -> int:
    """Bytes of shared memory that are free: a block may be larger than what there is, and writing to it ends the process."""
    if not hasattr(os, "statvfs") or not os.path.isdir(SHARED):
        return sys.maxsize
    context = os.statvfs(SHARED)
    return context.f_bavail * context.f_frsize


def _large(item: Any) -> dict[str, NDArray[np.generic]]:
    """The fields of a record that are large arrays."""
    if not attrs.has(type(item)):
        return {}
    fields = {field.name: getattr(item, field.name) for field in attrs.fields(type(item))}
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, np.ndarray) and value.nbytes >= LARGE and not value.dtype.hasobject
    }


def _remove(memory: SharedMemory, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has a copy of this object, not the memory
        memory.close()
        with contextlib.suppress(FileNotFoundError):
            memory.unlink()


_ATTACHED: dict[str, SharedMemory] = {}
"""In a process that receives: the blocks it has seen. A pool has few, each at least twice the one before."""


def _opened(block: str, start: int, shape: tuple[int, ...], dtype: str) -> Any:
    if block not in _ATTACHED:
        _ATTACHED[block] = SharedMemory(block)
    array: Any = np.ndarray(shape, np.dtype(dtype), _ATTACHED[block].buf, start)
    array.flags.writeable = False
    return array
