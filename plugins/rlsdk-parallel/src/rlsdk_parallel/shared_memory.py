"""Sends large arrays to other processes through shared memory instead of the pipe."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from multiprocessing.shared_memory import SharedMemory
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

ScalarT = TypeVar("ScalarT", bound=np.generic)


ALIGNMENT = 64
SHARED = "/dev/shm"  # noqa: S108  # the folder of shared memory on Linux
LARGE = 4096
"""Arrays of at least this many bytes are sent through shared memory; for smaller ones the pipe is as fast."""
FIRST = 1 << 20
"""Bytes of the first block. It is created before the processes, so that they share the tracker that cleans up after a crash."""


class Layout:
    """Places arrays one after another in a block of memory; without a block it only counts the bytes (`used`)."""

    def __init__(self, block: memoryview | None = None) -> None:
        self.block, self.used = block, 0

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[ScalarT]) -> NDArray[ScalarT]:
        """Return the next array in the block, uninitialized; without a block an empty array."""
        start = self.used
        self.used += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0, dtype) if self.block is None else np.ndarray(shape, dtype, self.block, start)


class SharedMemoryArray:
    """An array in shared memory. Unpickling it in another process returns the array itself, as a read-only view."""

    def __init__(self, block: str, start: int, array: NDArray[np.generic]) -> None:
        self.place = block, start, array.shape, array.dtype.str

    def __reduce__(self) -> tuple[object, ...]:
        return _opened, self.place


class SharedArrays:
    """The shared memory of one pool of processes. Its content is valid until `pack` is called again.

    If there is no shared memory or too little, as in some containers, arrays are sent through the pipe.
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

    def pack(self, items: Sequence[object]) -> list[object]:
        """Return the items with every large array in a field of an attrs record replaced by a `SharedMemoryArray`.

        An array that several items share is copied to shared memory once. All items may also be lists of records.
        """
        groups = [item for item in items if isinstance(item, list)]
        if groups and len(groups) == len(items):
            packed = iter(self.pack([record for group in groups for record in group]))
            return [[next(packed) for _ in group] for group in groups]
        found = [_large(item) for item in items]
        if not any(found):
            return list(items)
        arrays = {id(value): value for large in found for value in large.values()}
        needed = Layout()
        for value in arrays.values():
            needed(value.shape, value.dtype)
        if self._usable and needed.used > (0 if self._memory is None else self._memory.size):
            # twice as much as needed, so that there are few blocks, which receivers keep open
            self._allocate(2 * needed.used)
        if self._memory is None:
            return list(items)
        layout, shared = Layout(self._memory.buf), {}
        for key, value in arrays.items():
            shared[key] = SharedMemoryArray(self._memory.name, layout.used, value)
            layout(value.shape, value.dtype)[...] = value
        changes = [{name: shared[id(value)] for name, value in large.items()} for large in found]
        pairs: Iterable[tuple[Any, dict[str, SharedMemoryArray]]] = zip(items, changes, strict=True)
        return [attrs.evolve(item, **change) if change else item for item, change in pairs]

    def close(self) -> None:
        """Free the shared memory."""
        if self._memory is not None:
            self._free()
            self._memory = None


def _available() -> int:
    """Return the bytes of shared memory that are free.

    The system also creates blocks that are larger than that, but writing to them ends the process.
    """
    if not hasattr(os, "statvfs") or not os.path.isdir(SHARED):
        return sys.maxsize
    context = os.statvfs(SHARED)
    return context.f_bavail * context.f_frsize


def _large(item: Any) -> dict[str, NDArray[np.generic]]:
    """Return name -> array for the fields of an attrs record that are large arrays; empty for other objects."""
    found: dict[str, NDArray[np.generic]] = {}
    for name in _names(item.__class__):
        value = getattr(item, name)
        if isinstance(value, np.ndarray) and value.nbytes >= LARGE and not value.dtype.hasobject:
            found[name] = value
    return found


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of an attrs record; empty for other classes."""
    return tuple(field.name for field in attrs.fields(kind)) if attrs.has(kind) else ()


def _remove(memory: SharedMemory, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has a copy of this object but does not own the memory
        memory.close()
        with contextlib.suppress(FileNotFoundError):
            memory.unlink()


_ATTACHED: dict[str, SharedMemory] = {}
"""In a receiving process: name -> block for the blocks it has opened. A pool has few blocks, because each new one has at
least twice the size of the one before."""


def _opened(block: str, start: int, shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    if block not in _ATTACHED:
        _ATTACHED[block] = SharedMemory(block)
    array: NDArray[np.generic] = np.ndarray(shape, np.dtype(dtype), _ATTACHED[block].buf, start)
    array.flags.writeable = False
    return array
