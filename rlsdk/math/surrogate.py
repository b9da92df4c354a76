"""Losses of policy-gradient methods for each row of a batch, and their derivatives, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.math.returns import explained_variance

__all__ = [
    "approximate_kl",
    "clipped_surrogate",
    "clipped_surrogate_grad",
    "explained_variance",
    "mean_of",
    "normalized",
    "value_error",
    "value_error_grad",
]


def mean_of(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of `values` [N], weighted by `weight` [N]; with weights 0 and 1, the mean over the rows of weight 1."""
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The PPO loss -min(r A, clip(r, 1 - clip, 1 + clip) A), [N]. Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.

    Args:
        ratio: r = pi(a|s) / pi_old(a|s), float [N].
        advantage: A, float [N].
        clip: epsilon of the paper.
    """
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def clipped_surrogate_grad(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The derivative of each row of `clipped_surrogate` with respect to log pi(a|s), [N].

    It is -A r where the minimum is the unclipped term, else 0.
    """
    moved = ratio * advantage
    return moved.mul(moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage).neg_()


def value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """The squared error (target - v)^2, [N]. v is `value`, clipped to at most `clip` away from `old_value`.

    Source: arXiv:1811.02553, section 3. With `clip=None` v is not clipped.
    """
    moved = value if clip is None else old_value + (value - old_value).clamp(-clip, clip)
    return (target - moved).square()


def value_error_grad(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """The derivative of each row of `value_error` with respect to `value`, [N]."""
    if clip is None:
        return (value - target) * 2.0
    step = value - old_value
    return (old_value + step.clamp(-clip, clip) - target) * (step.abs() <= clip) * 2.0


def approximate_kl(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """The estimates r - 1 - log r of KL(pi_old || pi), [N], which are never negative (Schulman 2020, "k3")."""
    return ratio - 1.0 - log_ratio


def normalized(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """The normalised advantages (A - mean) / (standard deviation + 1e-8), [N].

    Mean and deviation are those of the rows whose `weight` [N] is above 0. With fewer than two such rows, A is unchanged.
    """
    rows = advantage if weight is None else advantage[weight > 0.0]
    if len(rows) < 2:
        return advantage
    deviation, mean = torch.std_mean(rows)
    return (advantage - mean) / (deviation + 1e-8)
