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
    return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), of_action(next_quantiles, places(best, sizes)))


def greedy_action(quantiles: Tensor, mask: Tensor | None, sizes: Sizes) -> Tensor:
    """Of each choice the allowed value with the largest mean, int64 [N, choices], for quantiles [N, A, K] and a mask [N, A]."""
    values = quantiles.mean(-1)
    allowed = values if mask is None else torch.where(mask, values, FORBIDDEN)
    if len(sizes) == 1:
        return allowed.argmax(-1, keepdim=True)
    return torch.stack([part.argmax(-1) for part in torch.split(allowed, list(sizes), -1)], -1)


def places(action: Tensor, sizes: Sizes) -> Tensor:
    """Where the values chosen by `action` [N, choices] stand among all N * A, int64 [choices * N]."""
    rows = torch.arange(len(action), device=action.device) * sum(sizes)
    if len(sizes) == 1:
        return rows + action[:, 0]
    offsets = action.new_tensor([sum(sizes[:k]) for k in range(len(sizes))])
    return (rows + (action + offsets).T).flatten()


def of_action(quantiles: Tensor, place: Tensor) -> Tensor:
    """The quantiles [choices, N, K] of the actions at `places`, of all [N, A, K]."""
    count, _, per_action = quantiles.shape
    return quantiles.flatten(0, 1).index_select(0, place).view(-1, count, per_action)
