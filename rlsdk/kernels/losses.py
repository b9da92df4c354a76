"""Losses and returns, computed by the fastest kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.switch import exists, is_on, may_compile

OfTwo = Callable[[Tensor, Tensor], Tensor]


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.kernels.reference.pairwise_huber`."""
    function = _fastest() if is_on() else by_torch.pairwise_huber
    return function(current, target, asymmetry, weight)


@cache
def _fastest() -> Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]:
    if not exists("pairwise_huber"):
        return by_torch.pairwise_huber
    from rlsdk.kernels.pairwise_huber import pairwise_huber as by_kernel

    return by_kernel


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
