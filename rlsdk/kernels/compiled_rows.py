"""Rows of columns in compiled code: one call instead of two per column."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array, c_int64

import torch
from torch import Tensor

from rlsdk.kernels.compiled_library import loaded_library
from rlsdk.kernels.rows import TorchRows


class CompiledRows:
    """See `rlsdk.kernels.rows.Rows`; contiguous columns [R, B, ..] on the CPU, none of them empty."""

    def __init__(self, columns: Sequence[Tensor]) -> None:
        self.columns = list(columns)
        self._by_torch, self._library = TorchRows(columns), loaded_library()
        self._rows, envs = self.columns[0].shape[:2]
        self._positions = self._rows * envs
        self._plan = [
            (c.data_ptr(), c.dtype, tuple(c.shape[2:]), c[0].numel(), c.element_size(), c[0, 0].nbytes)
            for c in self.columns
        ]

    def put(self, rows: Sequence[Tensor], first: int) -> None:
        """See `Rows`; rows [T, B, ..]."""
        count = rows[0].shape[0]
        if self._reads(rows, count) and first + count <= self._rows:
            copies = list[int]()
            for (start, _, _, numbers, bytes_each, _), values in zip(self._plan, rows, strict=True):
                size = numbers * bytes_each
                copies += values.data_ptr(), start + first * size, count * size
            self._library.copy_columns(_array(copies), len(self._plan))
        else:
            self._by_torch.put(rows, first)

    def put_following(self, rows: Sequence[Tensor], last: Sequence[Tensor], first: int) -> None:
        """See `Rows`; rows [T, B, ..], `last` [B, ..]."""
        count = rows[0].shape[0]
        if self._reads(rows, count) and self._reads(last, 1) and first + count <= self._rows:
            copies = list[int]()
            for (start, _, _, numbers, bytes_each, _), values, end in zip(self._plan, rows, last, strict=True):
                size = numbers * bytes_each
                target, further = start + first * size, (count - 1) * size
                copies += values.data_ptr() + size, target, further, end.data_ptr(), target + further, size
            self._library.copy_columns(_array(copies), 2 * len(self._plan))
        else:
            self._by_torch.put_following(rows, last, first)

    def _reads(self, rows: Sequence[Tensor], count: int) -> bool:
        """Whether compiled code can read `count` rows of each column."""
        for (_, dtype, _, numbers, _, _), values in zip(self._plan, rows, strict=True):
            if (
                values.dtype is not dtype
                or values.numel() != count * numbers
                or not values.is_contiguous()
                or not values.is_cpu
            ):
                return False
        return True

    def take(self, index: Tensor) -> list[Tensor]:
        """See `Rows`; flat positions int64 [N]."""
        if index.dtype is not torch.int64 or index.ndim != 1 or not index.is_cpu:
            return self._by_torch.take(index)
        positions, count = index.contiguous(), index.shape[0]
        copies, taken = list[int](), list[Tensor]()
        for start, dtype, shape, _, _, bytes_each in self._plan:
            found = torch.empty((count, *shape), dtype=dtype)
            taken.append(found)
            copies += start, found.data_ptr(), bytes_each
        if self._library.take_rows(_array(copies), len(taken), positions.data_ptr(), count, self._positions):
            raise IndexError(f"a position is outside of the {self._positions} that are stored")
        return taken

    def __getstate__(self) -> list[Tensor]:
        """Return the state without addresses, which must not be copied or pickled."""
        return self.columns

    def __setstate__(self, state: list[Tensor]) -> None:
        self.__init__(state)  # type: ignore[misc]


def _array(numbers: list[int]) -> Array[c_int64]:
    """Return the numbers of the structs `Copy` of `rows.c`: source, target and bytes of each column."""
    return (c_int64 * len(numbers))(*numbers)
