"""Normalisation of observations in compiled code; see `rlsdk.kernels.normalization`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlsdk.kernels.compiled_library import loaded_library


def normalized(values: Tensor, mean: Tensor, deviation: Tensor, bound: float) -> Tensor | None:
    """Return the normalised values [.., *shape]; None if compiled code cannot read them."""
    if not _reads(values, mean):
        return None
    found, size = torch.empty_like(values), mean.numel()
    statistics = mean.data_ptr(), deviation.data_ptr(), bound
    loaded_library().normalize(values.data_ptr(), values.numel() // size, size, *statistics, found.data_ptr())
    return found


def by_row(
    values: Tensor, into: Tensor, mean: Tensor, deviation: Tensor, bound: float
) -> Callable[[int], object] | None:
    """Return a function of t that normalises `values[t]` to `into[t]`, [T, .., *shape]; None if compiled code cannot read them.

    It is fast, because addresses are determined once.
    """
    if not _reads(values, mean) or not _reads(into, mean) or values.shape != into.shape or values.ndim <= mean.ndim:
        return None
    size, statistics = mean.numel(), (mean.data_ptr(), deviation.data_ptr(), bound)
    alive = values, into, mean, deviation
    rows, function = values.shape[1:].numel() // size, loaded_library().normalize
    start, target, step = values.data_ptr(), into.data_ptr(), rows * size * values.element_size()

    def normalize(t: int, alive: object = alive) -> None:
        function(start + t * step, rows, size, *statistics, target + t * step)

    return normalize


def _reads(values: Tensor, mean: Tensor) -> bool:
    """Whether compiled code can read values [.., *shape], for a mean [1, *shape]."""
    own = values.dtype is torch.float32 and values.is_cpu and values.is_contiguous()
    lead = values.ndim - (mean.ndim - 1)  # the number of dimensions before those of a single observation
    return own and lead > 0 and values.shape[lead:] == mean.shape[1:] and mean.numel() > 0
