"""Losses of policy-gradient methods, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_of(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over N rows, or over those whose `weight` [N] is 1."""
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float, weight: Tensor | None = None) -> Tensor:
    """-mean min(r A, clip(r, 1 - clip, 1 + clip) A). Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.

    Args:
        ratio: pi(a|s) / pi_old(a|s), float [N].
        advantage: float [N].
        clip: epsilon.
        weight: 1 for rows that count, float [N].
    """
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return -mean_of(torch.minimum(ratio * advantage, clipped * advantage), weight)


def value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip: float | None, weight: Tensor | None = None
) -> Tensor:
    """mean (target - v)^2 with v moved at most `clip` away from `old_value` (arXiv:1811.02553, section 3); None: freely."""
    moved = value if clip is None else old_value + (value - old_value).clamp(-clip, clip)
    return mean_of((target - moved).square(), weight)


def approximate_kl(log_ratio: Tensor, weight: Tensor | None = None) -> Tensor:
    """mean (r - 1 - log r), an estimate of KL(pi_old || pi) that is never negative (Schulman 2020, "k3")."""
    return mean_of(log_ratio.exp() - 1.0 - log_ratio, weight)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target): 1 is perfect, 0 as good as a constant; 0 where targets are constant."""
    spread = target.var(correction=0)
    return torch.where(spread > 0.0, 1.0 - (target - prediction).var(correction=0) / spread.clamp(min=1e-30), 0.0)


def normalized(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """(A - mean) / (deviation + 1e-8) over the rows that count; a single row is left as it is."""
    rows = advantage if weight is None else advantage[weight > 0.0]
    if len(rows) < 2:
        return advantage
    return (advantage - rows.mean()) / (rows.std() + 1e-8)
