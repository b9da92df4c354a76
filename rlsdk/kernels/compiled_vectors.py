"""Vectors in compiled code: steps of optimisers, the norm of gradients, and returns."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from rlsdk.kernels import reference
from rlsdk.kernels.compiled_library import Optimiser, Steps, loaded_library
from rlsdk.kernels.reference import Advantages
from rlsdk.kernels.vector_steps import SMALLEST_MOMENT, STEPS_BETWEEN_CLEARING, VectorStep
from rlsdk.records import StepData

KINDS = "adam", "rmsprop"
"""The optimisers, in the order of `optimisers.h`."""


def fits(vectors: Iterable[Tensor], size: int) -> bool:
    """Whether compiled code can read vectors [size]."""
    return all(v.dtype is torch.float32 and v.is_cpu and v.is_contiguous() and v.shape == (size,) for v in vectors)


def clip_norm(gradients: Tensor, max_norm: float) -> None:
    """Scale a gradient vector [D] down to the norm `max_norm`, in place."""
    loaded_library().clip_norm(gradients.data_ptr(), gradients.numel(), max_norm)


def optimiser_of(step: VectorStep) -> Optimiser:
    """Return a step for compiled code, which can read its vectors: check `fits` first."""
    options = step.rate, *step.decays, step.eps, step.weight_decay
    limits = SMALLEST_MOMENT * torch.finfo(torch.float32).tiny, -1.0 if step.max_norm is None else step.max_norm
    sizes = step.vectors[0].numel(), STEPS_BETWEEN_CLEARING
    return Optimiser(KINDS.index(step.kind), *sizes, *map(Tensor.data_ptr, step.vectors), *options, *limits)


def rmsprop_step(values: Tensor, gradients: Tensor, square: Tensor, rate: float, alpha: float, eps: float) -> None:
    """Make the step of RMSprop; all vectors [D]."""
    addresses, kind = map(Tensor.data_ptr, (values, gradients, square, square)), KINDS.index("rmsprop")
    options = Optimiser(
        kind, values.numel(), STEPS_BETWEEN_CLEARING, *addresses, rate, alpha, alpha, eps, 0.0, 0.0, -1.0
    )
    loaded_library().optimiser_step(byref(options), 1)


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    if value.ndim != 2 or not any(_are_alike(value, weight, of=kind) for kind in (torch.float32, torch.float64)):
        return reference.discounted_sums(value, weight)
    own, factors, found = value.detach().contiguous(), weight.detach().contiguous(), loaded_library()
    sums, function = torch.empty_like(own), found.discounted_sums
    if value.dtype is torch.float64:
        function = found.discounted_sums_double
    function(own.data_ptr(), factors.data_ptr(), *own.shape, sums.data_ptr())
    return sums


def advantages(steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Return (advantages [B * T], targets [B * T], a flag); see `rlsdk.kernels.returns.advantages`."""
    numbers, flags = (value, steps.reward, next_value), (steps.terminated, steps.truncated, steps.valid)
    if (
        value.ndim != 2
        or flags[0].shape != value.shape
        or not (_are_alike(*numbers) and _are_alike(*flags, of=torch.bool))
    ):
        return reference.advantages(steps, value, next_value, gamma, lam)
    given = [t.contiguous() for t in (*numbers, *flags)]
    advantage, target = value.new_empty(2, value.numel()).unbind()
    addresses, outputs = Steps(*map(Tensor.data_ptr, given)), (advantage.data_ptr(), target.data_ptr())
    whole = loaded_library().advantages(byref(addresses), *value.shape, gamma, gamma * lam, *outputs)
    return advantage, target, bool(whole)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d, for arguments [N]; see `rlsdk.kernels.reference.explained_variance`."""
    if not _are_alike(prediction, target):
        return reference.explained_variance(prediction, target)
    own, goal = prediction.detach().contiguous(), target.detach().contiguous()
    return own.new_full((), loaded_library().explained_variance(own.data_ptr(), goal.data_ptr(), own.numel()))


def _are_alike(*tensors: Tensor, of: torch.dtype = torch.float32) -> bool:
    return all(t.shape == tensors[0].shape and t.dtype is of and t.is_cpu for t in tensors)
