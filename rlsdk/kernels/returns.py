"""Returns, advantages and the explained variance, computed by the fastest kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.reference import Advantages
from rlsdk.kernels.table import offered
from rlsdk.records import StepData


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    choose = offered("discounted_sums")
    found: Tensor | None = None if choose is None else choose(value, weight)
    return by_torch.discounted_sums(value, weight) if found is None else found


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    choose = offered("explained_variance")
    found: Tensor | None = None if choose is None else choose(prediction, target)
    return by_torch.explained_variance(prediction, target) if found is None else found


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
    choose = offered("advantages")
    found: Advantages | None = None if choose is None else choose(steps, value, next_value, gamma, lam)
    return by_torch.advantages(steps, value, next_value, gamma, lam) if found is None else found
