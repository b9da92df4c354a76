"""A kernel: a function that takes the place of one of `rlsdk.kernels`. A tutorial; see README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from torch import Tensor


@hookimpl
def kernels() -> dict[str, Callable[..., object]]:
    """Name -> function that takes the place of the function of that name in `rlsdk.kernels.SLOTS`."""
    return {"discounted_sums": discounted_sums}


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """The sums S_t = value_t + weight_t S_{t+1}, computed from S_T = 0; all float [T, B].

    Each pass doubles the number of rows that a sum contains, so T rows need log2(T) passes instead of T.
    """
    sums, factor, rows = value.clone(), weight.clone(), 1
    while rows < len(sums):
        sums[:-rows] = sums[:-rows] + factor[:-rows] * sums[rows:]
        factor[:-rows] = factor[:-rows] * factor[rows:]
        rows *= 2
    return sums
