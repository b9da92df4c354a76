"""Losses of policy-gradient methods row by row, and their derivatives, as pure functions."""

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
    """Mean over N rows, or over those whose `weight` [N] is 1."""
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """-min(r A, clip(r, 1 - clip, 1 + clip) A), [N]. Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.

    Args:
        ratio: pi(a|s) / pi_old(a|s), float [N].
        advantage: float [N].
        clip: epsilon.
    """
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def clipped_surrogate_grad(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The derivative of each row with respect to log pi(a|s), [N]: -A r where the minimum is the unclipped term, else 0."""
    moved = ratio * advantage
    return moved.mul(moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage).neg_()


def value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """(target - v)^2 [N] with v moved at most `clip` away from `old_value` (arXiv:1811.02553, section 3); None: freely."""
    moved = value if clip is None else old_value + (value - old_value).clamp(-clip, clip)
    return (target - moved).square()


def value_error_grad(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """The derivative of each row of `value_error` with respect to v, [N]."""
    if clip is None:
        return (value - target) * 2.0
    step = value - old_value
    return (old_value + step.clamp(-clip, clip) - target) * (step.abs() <= clip) * 2.0


def approximate_kl(ratio: Tensor, log_ratio: Tensor) -> Tensor:
    """r - 1 - log r, [N]: estimates of KL(pi_old || pi) that are never negative (Schulman 2020, "k3")."""
    return ratio - 1.0 - log_ratio


def normalized(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """(A - mean) / (deviation + 1e-8), [N], over rows whose `weight` [N] is above 0; a single row stays as it is."""
    rows = advantage if weight is None else advantage[weight > 0.0]
    if len(rows) < 2:
        return advantage
    deviation, mean = torch.std_mean(rows)
    return (advantage - mean) / (deviation + 1e-8)
