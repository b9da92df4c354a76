"""Targets and losses of action values in compiled code: one call instead of three to eight."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.kernels.compiled_library import loaded_library, require_readable

Sizes = tuple[int, ...]


class CompiledValues:
    """Functions of action values [N, A, K] and of the values of C choices [C, N, K], all float32 on the CPU.

    Each does the same as its counterpart in `rlsdk.math.discrete_values` or `rlsdk.math.value_losses`.
    """

    def greedy_target(
        self, values: Tensor, selector: Tensor, mask: Tensor | None, rewards: tuple[Tensor, Tensor], sizes: Sizes
    ) -> Tensor:
        """Return the targets [C, N, K] for values and `selector` [N, A, K], a mask, bool [N, A] or None, and rewards and
        discounts [N] each."""
        (rows, _, entries), (reward, discount) = values.shape, rewards
        whole = rows, sum(sizes), entries
        found = values.new_empty(len(sizes), rows, entries)
        addresses = [_address(values, whole), _address(selector, whole)]
        allowed = None if mask is None else mask.contiguous()
        addresses.append(None if allowed is None else _address(allowed, whole[:2], torch.bool))
        addresses += [_address(reward, (rows,)), _address(discount, (rows,))]
        loaded_library().greedy_targets(*addresses, _numbers(sizes), len(sizes), rows, entries, found.data_ptr())
        return found

    def taken(self, values: Tensor, action: Tensor, sizes: Sizes) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return (the values [C, N, K] that `action` int64 [N, C] chooses, vjp); see
        `rlsdk.math.discrete_values.taken_values`."""
        library, (rows, _, entries), choices = loaded_library(), values.shape, len(sizes)
        found, chosen = values.new_empty(choices, rows, entries), action.contiguous()
        own, places = _address(values, (rows, sum(sizes), entries)), _address(chosen, (rows, choices), torch.int64)
        shape = _numbers(sizes), choices, rows, entries
        if library.values_taken(own, places, *shape, found.data_ptr()):
            raise UsageError(f"an action is none of the {list(sizes)} choices, which are counted from 0")

        def vjp(grad: Tensor) -> Tensor:
            given, grad_values = grad.contiguous(), torch.empty_like(values)
            library.values_taken_vjp(_address(given, found.shape), chosen.data_ptr(), *shape, grad_values.data_ptr())
            return grad_values

        return found, vjp

    def smooth_l1(self, values: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, gradient [C, N, K]) for values and targets [C, N, K] and the weight of each row, [N] or None."""
        rows, entries = values.shape[-2:]
        mean, grad = values.new_empty(()), torch.empty_like(values)
        addresses = [_address(values, values.shape), _address(target, values.shape)]
        addresses.append(None if weight is None else _address(weight, (rows,)))
        size = values.numel() // max(rows * entries, 1), rows, entries
        loaded_library().smooth_l1(*addresses, *size, mean.data_ptr(), grad.data_ptr())
        return mean, grad


def _address(values: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Return the address of `values` [..], which must be contiguous. Raises UsageError for another shape or dtype."""
    require_readable(values, tuple(shape), dtype)
    return values.data_ptr()


@lru_cache(64)
def _numbers(sizes: Sizes) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(sizes))(*sizes)
