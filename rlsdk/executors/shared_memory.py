"""Sends large arrays to other processes through shared memory instead of the pipe."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

ScalarT = TypeVar("ScalarT", bound=np.generic)
ALIGNMENT = 64
SHARED = "/dev/shm"  # noqa: S108  # where Linux keeps it
LARGE = 4096
"""Bytes from which an array goes through shared memory; smaller ones are as quick through the pipe."""
FIRST = 1 << 20
"""Bytes of the first block. It exists before the processes do, so that they share the tracker which cleans up after a crash."""


class Layout:
    """Places arrays one after another in a block of memory; without a block it only counts."""

    def __init__(self, block: memoryview | None = None) -> None:
        self.block, self.used = block, 0

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[ScalarT]) -> NDArray[ScalarT]:
        """The next array."""
        start = self.used
        self.used += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0, dtype) if self.block is None else np.ndarray(shape, dtype, self.block, start)


class SharedArray:
    """An array in shared memory. Where it is unpickled the array itself appears, as a read-only view."""

    def __init__(self, block: str, start: int, array: NDArray[np.generic]) -> None:
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

    def pack(self, items: Sequence[object]) -> list[object]:
        """The items ready to be sent: large arrays in fields of attrs records are in shared memory, once if items share them.

        An item may be a list of records.
        """
        groups = [item for item in items if isinstance(item, list)]
        if groups and len(groups) == len(items):
            packed = iter(self.pack([record for group in groups for record in group]))
            return [[next(packed) for _ in group] for group in groups]
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
        changes = [{name: shared[id(value)] for name, value in large.items()} for large in found]
        return [_with(item, change) if change else item for item, change in zip(items, changes, strict=True)]

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


def _large(item: object) -> dict[str, NDArray[np.generic]]:
    """The fields of a record that are large arrays."""
    kind = type(item)
    if not attrs.has(kind):
        return {}
    fields: dict[str, object] = {field.name: getattr(item, field.name) for field in attrs.fields(kind)}
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, np.ndarray) and value.nbytes >= LARGE and not value.dtype.hasobject
    }


def _with(record: Any, changes: dict[str, SharedArray]) -> object:
    """The attrs record with other values in some fields."""
    return attrs.evolve(record, **changes)


def _remove(memory: SharedMemory, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has a copy of this object, not the memory
        memory.close()
        with contextlib.suppress(FileNotFoundError):
            memory.unlink()


_ATTACHED: dict[str, SharedMemory] = {}
"""In a process that receives: the blocks it has seen. A pool has few, each at least twice the one before."""


def _opened(block: str, start: int, shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    if block not in _ATTACHED:
        _ATTACHED[block] = SharedMemory(block)
    array: NDArray[np.generic] = np.ndarray(shape, np.dtype(dtype), _ATTACHED[block].buf, start)
    array.flags.writeable = False
    return array
