"""Returns and the explained variance, computed by the fastest kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.switch import may_compile

OfTwo = Callable[[Tensor, Tensor], Tensor]


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    return _returns_for(value)[0](value, weight)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    return _returns_for(target)[1](prediction, target)


def _returns_for(values: Tensor) -> tuple[OfTwo, OfTwo]:
    """Return the fastest functions for tensors like `values` [..]."""
    if torch.compiler.is_compiling() or not values.is_cpu or not may_compile():
        return by_torch.discounted_sums, by_torch.explained_variance
    return _compiled_returns()


@cache
def _compiled_returns() -> tuple[OfTwo, OfTwo]:
    from rlsdk.kernels import compiled_vectors

    return compiled_vectors.discounted_sums, compiled_vectors.explained_variance
