"""Copies rows between the columns of a buffer and rollouts or batches.

A column [R, B, ..] has R rows of B environments. All columns of a call have the same R and B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from rlsdk.kernels.switch import may_compile


class Rows(Protocol):
    """Columns [R, B, ..] whose rows are written and read together."""

    def put(self, rows: Sequence[Tensor], first: int) -> None:
        """Write rows [T, B, ..] into each column, from row `first` on. Rows after the last one go to the beginning."""
        ...

    def put_following(self, rows: Sequence[Tensor], last: Sequence[Tensor], first: int) -> None:
        """Write the rows [T, B, ..] after the first one, and then `last` [B, ..], into each column, from row `first` on."""
        ...

    def take(self, index: Tensor) -> list[Tensor]:
        """Return copies [N, ..] of each column at flat positions int64 [N], row * B + environment.

        Raises:
            IndexError: a position is outside of the columns.
        """
        ...


class TorchRows:
    """See `Rows`."""

    def __init__(self, columns: Sequence[Tensor]) -> None:
        self.columns = list(columns)

    def put(self, rows: Sequence[Tensor], first: int) -> None:
        """See `Rows`; rows [T, B, ..]."""
        for column, values in zip(self.columns, rows, strict=True):
            whole, count = len(column), len(values)
            if first + count <= whole:  # writing to a slice is faster than to an index
                column[first : first + count] = values
            else:
                column[(first + torch.arange(count, device=column.device)) % whole] = values

    def put_following(self, rows: Sequence[Tensor], last: Sequence[Tensor], first: int) -> None:
        """See `Rows`; rows [T, B, ..], `last` [B, ..]."""
        self.put([torch.cat([own[1:], end.unsqueeze(0)]) for own, end in zip(rows, last, strict=True)], first)

    def take(self, index: Tensor) -> list[Tensor]:
        """See `Rows`; flat positions int64 [N]."""
        return [column.flatten(0, 1).index_select(0, index) for column in self.columns]


def rows_of(columns: Sequence[Tensor]) -> Rows:
    """Return the fastest way to write and read rows of columns [R, B, ..]."""
    if may_compile() and all(column.is_cpu and column.is_contiguous() and column.numel() for column in columns):
        from rlsdk.kernels.compiled_rows import CompiledRows

        return CompiledRows(columns)
    return TorchRows(columns)
