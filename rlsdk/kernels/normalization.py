"""Normalisation of observations with given statistics, in compiled code where possible.

Values are [.., *shape], without graph. The statistics `mean` and `deviation` are float64 [1, *shape] on the CPU. Results are
(values - mean) / deviation as float32, clipped to +-`bound`, and equal to those of torch bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rlsdk.kernels.switch import may_compile


def normalized(values: Tensor, mean: Tensor, deviation: Tensor, bound: float) -> Tensor | None:
    """Return the normalised values [.., *shape]; None if there is no compiled code for them."""
    if not may_compile():
        return None
    from rlsdk.kernels import compiled_normalization as compiled

    return compiled.normalized(values, mean, deviation, bound)


def by_row(
    values: Tensor, into: Tensor, mean: Tensor, deviation: Tensor, bound: float
) -> Callable[[int], object] | None:
    """Return a function of t that normalises `values[t]` to `into[t]`, [T, .., *shape]; None if there is no compiled code.

    The statistics may change, but must keep their memory while the function is used.
    """
    if not may_compile():
        return None
    from rlsdk.kernels import compiled_normalization as compiled

    return compiled.by_row(values, into, mean, deviation, bound)
