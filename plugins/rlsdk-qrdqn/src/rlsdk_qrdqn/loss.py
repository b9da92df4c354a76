"""The target of QR-DQN: a pure tensor function. Source: Dabney et al. 2017, arXiv:1710.10044, algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

FORBIDDEN = -1e30
Sizes = tuple[int, ...]
"""How many values each choice of an action has; A is their sum. A Discrete action is one choice."""


def quantile_target(next_quantiles: Tensor, best: Tensor, reward: Tensor, discount: Tensor, sizes: Sizes) -> Tensor:
    """y_j = r + discount * theta_j(s', a*) for each choice, [choices, N, K].

    All quantiles are those of one greedy action; a maximum of each quantile by itself would mix actions.

    Args:
        next_quantiles: of the target network at s', float [N, A, K].
        best: a*, the greedy action at s', int64 [N, choices].
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not at a time limit), float [N].
        sizes: of the choices.
    """
    return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), of_action(next_quantiles, best, sizes))


def greedy_action(quantiles: Tensor, mask: Tensor | None, sizes: Sizes) -> Tensor:
    """Of each choice the allowed value with the largest mean, int64 [N, choices], for quantiles [N, A, K] and a mask [N, A]."""
    values = quantiles.mean(-1)
    allowed = values if mask is None else torch.where(mask, values, FORBIDDEN)
    return torch.stack([part.argmax(-1) for part in torch.split(allowed, list(sizes), -1)], -1)


def columns(action: Tensor, sizes: Sizes) -> Tensor:
    """Where the values chosen by `action` [N, choices] stand among all A, int64 [choices, N]."""
    return (action + action.new_tensor([sum(sizes[:k]) for k in range(len(sizes))])).T


def of_action(quantiles: Tensor, action: Tensor, sizes: Sizes) -> Tensor:
    """The quantiles [choices, N, K] of actions int64 [N, choices]."""
    return quantiles[torch.arange(len(action), device=action.device), columns(action, sizes)]
