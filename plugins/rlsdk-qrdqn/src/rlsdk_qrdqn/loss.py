"""The target of QR-DQN: a pure tensor function. Source: Dabney et al. 2017, arXiv:1710.10044, algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

FORBIDDEN = -1e30


def quantile_target(
    next_quantiles: Tensor, judge: Tensor, mask: Tensor | None, reward: Tensor, discount: Tensor
) -> Tensor:
    """y_j = r + discount * theta_j(s', a*) [N, K] with a* = argmax_a of the mean of `judge` over allowed actions.

    All quantiles are those of one greedy action; a maximum of each quantile by itself would mix actions.

    Args:
        next_quantiles: of the target network at s', float [N, A, K].
        judge: quantiles that choose the action, [N, A, K]: the target network's, or the online one's (double Q).
        mask: bool [N, A], True where allowed at s'; None = all.
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not at a time limit), float [N].
    """
    best = greedy_action(judge, mask)
    chosen = of_action(next_quantiles, best)
    return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), chosen)


def greedy_action(quantiles: Tensor, mask: Tensor | None) -> Tensor:
    """The allowed action with the largest mean, int64 [N], for quantiles [N, A, K]."""
    values = quantiles.mean(-1)
    return (values if mask is None else torch.where(mask, values, FORBIDDEN)).argmax(-1)


def of_action(quantiles: Tensor, action: Tensor) -> Tensor:
    """The quantiles [N, K] of one action int64 [N] each."""
    return quantiles[torch.arange(len(action), device=action.device), action]
