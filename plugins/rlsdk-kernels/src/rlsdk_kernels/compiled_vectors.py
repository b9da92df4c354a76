"""Vectors in compiled code: steps of optimizers, the norm of gradients, returns, and normalization with given statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import byref, c_float
from operator import is_
from typing import Any

import torch
from torch import Tensor

from rlsdk.kernels import VectorStep
from rlsdk.records import StepData
from rlsdk_kernels.compiled_library import Optimizer, Steps, loaded_library
from rlsdk_kernels.memory import Memory, require_memory

KINDS = "adam", "rmsprop"
"""The optimizers, in the order of `optimizers.h`."""


def fits(vectors: Iterable[Tensor], *shape: int) -> bool:
    """Whether compiled code can read tensors [*shape]. Raises UsageError if one has lost its memory."""
    found = list(vectors)
    fit = all(v.dtype is torch.float32 and v.is_cpu and v.is_contiguous() and v.shape == shape for v in found)
    require_memory(found)
    return fit


def clip_norm(gradients: Tensor, max_norm: float) -> None:
    """Scale a gradient vector [D] down to the norm `max_norm`, in place."""
    loaded_library().clip_norm(gradients.data_ptr(), gradients.numel(), max_norm)


def optimizer_of(step: VectorStep) -> Optimizer:
    """Return a step for compiled code, which can read its vectors: check `fits` first."""
    options = step.rate, *step.decays, step.eps, step.weight_decay
    smallest = step.smallest_moment * torch.finfo(torch.float32).tiny
    limits = smallest, -1.0 if step.max_norm is None else step.max_norm
    sizes = step.vectors[0].numel(), step.clear_every
    return Optimizer(KINDS.index(step.kind), *sizes, *map(Tensor.data_ptr, step.vectors), *options, *limits)


class CompiledStep:
    """Makes the steps of one vector of parameters. What compiled code reads is described again only if it changes."""

    def __init__(self) -> None:
        self._held: tuple[Tensor, ...] = ()
        self._known: tuple[object, ...] = ()
        self._memory = Memory()
        self._described: Any = None
        self._function: Any = None

    def __reduce__(self) -> tuple[type[CompiledStep], tuple[()]]:
        return CompiledStep, ()  # a copy describes its own vectors

    def __call__(self, step: VectorStep) -> bool:
        """Make a step and count it. Returns False, without a step, if compiled code cannot read its vectors."""
        kind, vectors, made, *options = step
        held = *vectors, made
        known = kind, *options
        if not (known == self._known and all(map(is_, held, self._held)) and self._memory.is_that_of(held)):
            if not fits(vectors, vectors[0].numel()) or not fits((made,)):
                return False
            self._held, self._known, self._memory = held, known, Memory(held)
            self._described, self._function = byref(optimizer_of(step)), loaded_library().counted_step
        self._function(self._described, made.data_ptr())
        return True


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor | None:
    """Return the sums [T, B]; see `rlsdk.math.discounted_sums`. None: compiled code cannot read the tensors."""
    if value.ndim != 2 or not any(_are_alike(value, weight, of=kind) for kind in (torch.float32, torch.float64)):
        return None
    own, factors, found = value.detach().contiguous(), weight.detach().contiguous(), loaded_library()
    sums, function = torch.empty_like(own), found.discounted_sums
    if value.dtype is torch.float64:
        function = found.discounted_sums_double
    function(own.data_ptr(), factors.data_ptr(), *own.shape, sums.data_ptr())
    return sums


def advantages(
    steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor, bool] | None:
    """Return (advantages [B * T], targets [B * T], whether all steps are valid); None if compiled code cannot read them."""
    numbers, flags = (value, steps.reward, next_value), (steps.terminated, steps.truncated, steps.valid)
    if (
        value.ndim != 2
        or flags[0].shape != value.shape
        or not (_are_alike(*numbers) and _are_alike(*flags, of=torch.bool))
    ):
        return None
    given = [t.contiguous() for t in (*numbers, *flags)]
    advantage, target = value.new_empty(2, value.numel()).unbind()
    addresses, outputs = Steps(*map(Tensor.data_ptr, given)), (advantage.data_ptr(), target.data_ptr())
    whole = loaded_library().advantages(byref(addresses), *value.shape, gamma, gamma * lam, *outputs)
    return advantage, target, bool(whole)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor | None:
    """Return a number, 0-d, for arguments [N]; see `rlsdk.math.surrogate.explained_variance`. None: compiled code cannot read
    the tensors."""
    if not _are_alike(prediction, target):
        return None
    own, goal = prediction.contiguous(), target.contiguous()
    found = loaded_library().explained_variance(own.data_ptr(), goal.data_ptr(), own.numel())
    return own.new_full((), c_float(found).value)  # a number that is too large for float32 is infinite


def _are_alike(*tensors: Tensor, of: torch.dtype = torch.float32) -> bool:
    return all(t.shape == tensors[0].shape and t.dtype is of and t.is_cpu for t in tensors)


class Normalization:
    """Computes (values - mean) / deviation as float32, clipped to +-`bound`, with the results of torch bit by bit.

    Values are [.., *shape], without graph. The statistics `mean` and `deviation` are float64 [1, *shape] on the CPU.
    """

    def __init__(self) -> None:
        self._function = loaded_library().normalize

    def __reduce__(self) -> tuple[type[Normalization], tuple[()]]:
        return Normalization, ()  # functions of compiled code cannot be copied

    def __call__(self, values: Tensor, mean: Tensor, deviation: Tensor, bound: float) -> Tensor | None:
        """Return the normalized values [.., *shape]; None if compiled code cannot read them."""
        if not self._reads(values, mean):
            return None
        found, size = torch.empty_like(values), mean.numel()
        statistics = mean.data_ptr(), deviation.data_ptr(), bound
        self._function(values.data_ptr(), values.numel() // size, size, *statistics, found.data_ptr())
        return found

    def by_row(
        self, values: Tensor, into: Tensor, mean: Tensor, deviation: Tensor, bound: float
    ) -> Callable[[int], object] | None:
        """Return a function of t that normalizes `values[t]` to `into[t]`, [T, .., *shape]; None if compiled code cannot.

        It is fast, because addresses are determined once. The statistics may change, but must keep their memory.
        """
        alike = values.shape == into.shape and values.ndim > mean.ndim
        if not alike or not self._reads(values, mean) or not self._reads(into, mean):
            return None
        size, statistics, function = mean.numel(), (mean.data_ptr(), deviation.data_ptr(), bound), self._function
        rows, alive = values.shape[1:].numel() // size, (values, into, mean, deviation)
        start, target, step = values.data_ptr(), into.data_ptr(), rows * size * values.element_size()

        def normalize(t: int, alive: object = alive) -> None:
            function(start + t * step, rows, size, *statistics, target + t * step)

        return normalize

    def _reads(self, values: Tensor, mean: Tensor) -> bool:
        own = values.dtype is torch.float32 and values.is_cpu and values.is_contiguous() and mean.is_contiguous()
        lead = values.ndim - (mean.ndim - 1)  # the number of dimensions before those of a single observation
        return own and lead > 0 and values.shape[lead:] == mean.shape[1:] and mean.numel() > 0
