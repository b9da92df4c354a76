"""Losses, returns and action values in compiled code or numpy. `hooks` offers these functions for those of `rlsdk.kernels`.

A function returns None if torch must compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlsdk.kernels import kernel_states
from rlsdk.records import StepData
from rlsdk_kernels import compiled_values, compiled_vectors
from rlsdk_kernels.compiled_library import may_compile
from rlsdk_kernels.compiled_values import CompiledValues
from rlsdk_kernels.pairwise_huber import pairwise_huber as by_sorting

_action_values = CompiledValues()


def pairwise_huber(
    current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.math.values.quantile_huber`."""
    return _fastest(kernel_states[-1])(current, target, asymmetry, weight)


@cache
def _fastest(now: str) -> Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor] | None]:
    compiled = not torch.compiler.is_compiling() and may_compile()
    return compiled_values.pairwise_huber if compiled else by_sorting


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor | None:
    """Return the sums [T, B]; see `rlsdk.math.discounted_sums`."""
    return compiled_vectors.discounted_sums(value, weight) if _reads(value) else None


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor | None:
    """Return a number, 0-d, for arguments [N]; see `rlsdk.math.surrogate.explained_variance`."""
    return compiled_vectors.explained_variance(prediction, target) if _reads(target) else None


def advantages(
    steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor, bool] | None:
    """Return (advantages [B * T], targets [B * T], whether all steps are valid), row after row of one environment."""
    return compiled_vectors.advantages(steps, value, next_value, gamma, lam) if _reads(value) else None


def _reads(values: Tensor) -> bool:
    """Whether compiled code can read tensors like `values` [..]."""
    return not torch.compiler.is_compiling() and values.is_cpu and _compiles(kernel_states[-1])


@cache
def _compiles(now: str) -> bool:
    """Whether there is compiled code, while `now` is on. Every update needs it, so it is cached."""
    return may_compile()


def action_values(*tensors: Tensor | None) -> CompiledValues | None:
    """Return compiled functions for these tensors [..]; None if torch must compute, for example on a GPU or for autograd."""
    if not _compiles(kernel_states[-1]) or torch.compiler.is_compiling():
        return None
    for tensor in tensors:
        if tensor is not None and not (
            type(tensor) is Tensor
            and tensor.dtype is torch.float32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.requires_grad
        ):
            return None
    return _action_values
