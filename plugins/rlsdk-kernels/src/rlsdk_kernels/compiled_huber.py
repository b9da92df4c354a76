"""Sums over all pairs of predicted quantiles and target atoms in compiled code, without tensors of all pairs."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from functools import cache

import torch
from torch import Tensor

from rlsdk_kernels import pairwise_huber as by_torch
from rlsdk_kernels.compiled_library import loaded_library

PAIRS_PER_KEY = 100
"""Computing this number of pairs takes at least as long as sorting one number; with AVX-512 it is some 300 pairs."""


def pairwise_huber(
    current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Return (sum, 0-d; gradients [.., N, K]), the same as torch; None if torch must compute, for example for autograd."""
    shape, shared = current.shape, target.ndim == 2
    numbers = current, target, asymmetry, *(() if weight is None else (weight,))
    for tensor in numbers:
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.requires_grad:
            return by_torch.pairwise_huber(current, target, asymmetry, weight)
    quantiles, atoms, rows = shape[-1], target.shape[-1], shape[-2]
    fit = target.shape[:-1] == (shape[-2:-1] if shared else shape[:-1]) and asymmetry.shape == shape[-1:]
    if not fit or (weight is not None and weight.shape != shape[-2:-1]):
        return by_torch.pairwise_huber(current, target, asymmetry, weight)
    if quantiles * atoms > PAIRS_PER_KEY * (atoms + 3 * quantiles):
        return by_torch.pairwise_huber(current, target, asymmetry, weight)
    read = [tensor.contiguous() for tensor in numbers]
    grad, addresses = torch.empty_like(read[0]), [*map(Tensor.data_ptr, read), None][:4]
    members = current.numel() // max(1, rows * quantiles)
    total = _function()(*addresses, members, rows, quantiles, atoms, not shared, grad.data_ptr())
    return grad.new_full((), c_float(total).value), grad  # a number that is too large for float32 is infinite


@cache
def _function() -> Callable[..., float]:
    found: Callable[..., float] = loaded_library().pairwise_huber
    return found
