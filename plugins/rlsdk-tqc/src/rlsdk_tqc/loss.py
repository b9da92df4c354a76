"""The target of TQC: pure tensor functions. Source: Kuznetsov et al. 2020, arXiv:2005.04269."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def truncated_target(
    next_quantiles: Tensor, next_log_prob: Tensor, reward: Tensor, discount: Tensor, alpha: Tensor, *, keep: int
) -> Tensor:
    """Target atoms y [N, keep] (equations 10 to 12): y_i = r + discount * (z_(i) - alpha * log pi(a'|s')), i = 1 ... keep,

    where z_(1) <= z_(2) <= ... are the atoms of all critics pooled and sorted. The order of the `keep` smallest
    atoms does not matter, so they are selected without sorting.

    Args:
        next_quantiles: atoms of the target critics at (s', a'), float [C, N, K].
        next_log_prob: log pi(a'|s') of the policy's next action, float [N].
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not where it was cut off by a time limit), float [N].
        alpha: weight of the entropy, 0-d.
        keep: how many atoms stay, C * (K - dropped per critic).
    """
    members, rows, quantiles = next_quantiles.shape
    pooled = next_quantiles.movedim(0, 1).reshape(rows, members * quantiles)
    soft = smallest(pooled, keep) - (alpha * next_log_prob).unsqueeze(1)
    return reward.unsqueeze(1) + discount.unsqueeze(1) * soft


def smallest(values: Tensor, count: int) -> Tensor:
    """The `count` smallest entries of each row of float [N, M], in any order, [N, count]. NaN counts as the largest."""
    # numpy has no gradients, no GPU, and cannot be traced
    if not values.is_cpu or values.requires_grad or torch.compiler.is_compiling():
        return values.topk(count, dim=-1, largest=False, sorted=False).values
    return torch.from_numpy(np.partition(values.numpy(), count - 1)[:, :count])  # a quarter of the time of `topk`
