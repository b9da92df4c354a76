"""Compiled functions of action values, and sums over all pairs of predicted quantiles and target atoms."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_float
from functools import cache, lru_cache

import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk_kernels import pairwise_huber as by_torch
from rlsdk_kernels.compiled_library import as_floats, loaded_library, require_readable

# Sums over all pairs of predicted quantiles and target atoms in compiled code, without tensors of all pairs.

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


# Targets and losses of action values in compiled code: one call instead of three to eight.

Sizes = tuple[int, ...]


class CompiledValues:
    """Functions of action values [N, A, K] and of the values of C choices [C, N, K].

    Tensors of float are those that `rlsdk_kernels.functions.action_values` accepts. Each function does the same as its
    counterpart in `rlsdk.math.values`.
    """

    def greedy_target(
        self, values: Tensor, selector: Tensor, mask: Tensor | None, rewards: tuple[Tensor, Tensor], sizes: Sizes
    ) -> Tensor:
        """Return the targets [C, N, K] for values and `selector` [N, A, K], a mask, bool [N, A] or None, and rewards and
        discounts [N] each."""
        (rows, total, entries), (reward, discount) = values.shape, rewards
        fits = selector.shape == values.shape and reward.shape == discount.shape == (rows,)
        if total != sum(sizes) or not fits:
            raise _unlike(values, selector, reward, discount)
        allowed = None if mask is None else mask.contiguous()
        if allowed is not None:
            require_readable(allowed, (rows, total), torch.bool)
        found = values.new_empty(len(sizes), rows, entries)
        loaded_library().greedy_targets(
            values.data_ptr(),
            selector.data_ptr(),
            None if allowed is None else allowed.data_ptr(),
            reward.data_ptr(),
            discount.data_ptr(),
            _numbers(sizes),
            len(sizes),
            rows,
            entries,
            found.data_ptr(),
        )
        return found

    def taken(self, values: Tensor, action: Tensor, sizes: Sizes) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return (the values [C, N, K] that `action` int64 [N, C] chooses, vjp); see
        `rlsdk.math.values.taken_values`."""
        library, (rows, total, entries), choices = loaded_library(), values.shape, len(sizes)
        if total != sum(sizes):
            raise _unlike(values, action)
        found, chosen = values.new_empty(choices, rows, entries), action.contiguous()
        require_readable(chosen, (rows, choices), torch.int64)
        shape = _numbers(sizes), choices, rows, entries
        if library.values_taken(values.data_ptr(), chosen.data_ptr(), *shape, found.data_ptr()):
            raise UsageError(f"an action is none of the {list(sizes)} choices, which are counted from 0")

        def vjp(grad: Tensor) -> Tensor:
            given, grad_values = as_floats(grad), torch.empty_like(values)
            if given.shape != found.shape:
                raise _unlike(found, given)
            # `chosen` must stay alive until now: it may be a temporary of the caller
            if library.values_taken_vjp(given.data_ptr(), chosen.data_ptr(), *shape, grad_values.data_ptr()):
                raise UsageError("actions were changed between a loss and its gradient")
            return grad_values

        return found, vjp

    def smooth_l1(self, values: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, gradient [C, N, K]) for values and targets [C, N, K] and the weight of each row, [N] or None."""
        *lead, rows, entries = values.shape
        if weight is not None and weight.shape != (rows,):
            raise _unlike(values, weight)
        mean, grad = values.new_empty(()), torch.empty_like(values)
        weights = None if weight is None else weight.data_ptr()
        size = math.prod(lead), rows, entries
        loaded_library().smooth_l1(
            values.data_ptr(), target.data_ptr(), weights, *size, mean.data_ptr(), grad.data_ptr()
        )
        return mean, grad


def _unlike(values: Tensor, *others: Tensor) -> UsageError:
    shapes = ", ".join(str(list(other.shape)) for other in others)
    return UsageError(f"a batch has {shapes}, which does not fit action values of shape {list(values.shape)}")


@lru_cache(64)
def _numbers(sizes: Sizes) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(sizes))(*sizes)
