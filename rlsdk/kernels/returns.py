"""Returns, advantages and the explained variance, computed by the fastest kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.reference import Advantages
from rlsdk.kernels.switch import may_compile
from rlsdk.records import StepData

OfTwo = Callable[[Tensor, Tensor], Tensor]
OfSteps = Callable[[StepData[Any], Tensor, Tensor, float, float], Advantages]


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    return _returns_for(value)[0](value, weight)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    return _returns_for(target)[1](prediction, target)


def advantages(steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Generalised advantages and regression targets of values, as rows; see `rlsdk.math.gae`.

    Returns:
        (advantages [B * T], targets [B * T], whether all steps are valid). The rows are all steps of the first environment in
        order of time, then those of the next one.

    Args:
        steps: the steps [T, B].
        value: the values of the observations acted on, float [T, B].
        next_value: the values of the next observations, float [T, B]. Where an episode ended, it is the value of that
            episode's last observation.
        gamma: discount.
        lam: lambda of generalised advantage estimation.
    """
    return _returns_for(value)[2](steps, value, next_value, gamma, lam)


def _returns_for(values: Tensor) -> tuple[OfTwo, OfTwo, OfSteps]:
    """Return the fastest functions for tensors like `values` [..]."""
    if torch.compiler.is_compiling() or not values.is_cpu or not may_compile():
        return by_torch.discounted_sums, by_torch.explained_variance, by_torch.advantages
    return _compiled_returns()


@cache
def _compiled_returns() -> tuple[OfTwo, OfTwo, OfSteps]:
    from rlsdk.kernels import compiled_vectors as compiled

    return compiled.discounted_sums, compiled.explained_variance, compiled.advantages
