"""Values of discrete actions: the greedy action, and the target of Q-learning. Pure tensor functions.

Action values have the shape [N, A, K]. A is the number of values of all choices of an action, one choice after the other. K is
the number of entries per value: 1 for a mean return (arXiv:1312.5602), or K quantiles of the return (arXiv:1710.10044).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from rlsdk.kernels.factory import action_values
from rlsdk.math.constants import constant, multiples

Sizes = tuple[int, ...]
"""The number of values of each choice of an action; A is their sum. A Discrete action is one choice."""


def mean_values(values: Tensor) -> Tensor:
    """The means over K of action values [N, A, K], [N, A]."""
    return values.mean(-1) if values.shape[-1] > 1 else values.squeeze(-1)


def greedy_action(values: Tensor, mask: Tensor | None, sizes: Sizes) -> Tensor:
    """The greedy action, int64 [N, choices]: for each choice, the allowed value with the largest mean over K.

    Args:
        values: action values, float [N, A, K].
        mask: bool [N, A], True where a value is allowed; None = all.
        sizes: the number of values of each choice.
    """
    means = mean_values(values)
    allowed = means if mask is None else torch.where(mask, means, -inf)
    if len(sizes) == 1:
        return allowed.argmax(-1, keepdim=True)
    return torch.stack([part.argmax(-1) for part in torch.split(allowed, list(sizes), -1)], -1)


def flat_index(action: Tensor, sizes: Sizes) -> Tensor:
    """The rows of `values.flatten(0, 1)` [N * A, K] that `action` int64 [N, choices] chooses, int64 [choices * N]."""
    rows = multiples(action.shape[0], sum(sizes), action)
    if len(sizes) == 1:
        return rows + action[:, 0]
    offsets = constant([sum(sizes[:k]) for k in range(len(sizes))], action)
    return (rows + (action + offsets).T).flatten()


def values_at(values: Tensor, index: Tensor) -> Tensor:
    """The entries [choices, N, K] of `values` float [N, A, K] at an index [choices * N] from `flat_index`."""
    rows, _, per_action = values.shape
    return values.flatten(0, 1).index_select(0, index).view(-1, rows, per_action)


def q_target(next_values: Tensor, next_action: Tensor, reward: Tensor, discount: Tensor, sizes: Sizes) -> Tensor:
    """y_j = r + discount * z_j(s', a*) for each choice, [choices, N, K] (arXiv:1710.10044, algorithm 1).

    All K entries belong to one action a*. A separate maximum for each quantile would mix actions.

    Args:
        next_values: action values of the target network at s', float [N, A, K].
        next_action: a*, the greedy action at s', int64 [N, choices].
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not at a time limit), float [N].
        sizes: the number of values of each choice.
    """
    chosen = values_at(next_values, flat_index(next_action, sizes))
    return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), chosen)


def greedy_target(
    next_values: Tensor, reward: Tensor, discount: Tensor, sizes: Sizes, *, mask: Tensor | None, selector: Tensor
) -> Tensor:
    """The target `q_target` [choices, N, K] for the greedy action at s'.

    Args:
        next_values: action values of the target network at s', float [N, A, K].
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not at a time limit), float [N].
        sizes: the number of values of each choice.
        mask: the values allowed at s', bool [N, A]; None = all.
        selector: the values at s' that select the action, float [N, A, K]: `next_values`, or those of the online network
            (double Q-learning, arXiv:1509.06461, equation 4).
    """
    if (fast := action_values(next_values, reward, discount, selector)) is not None:
        return fast.greedy_target(next_values, selector, mask, (reward, discount), sizes)
    return q_target(next_values, greedy_action(selector, mask, sizes), reward, discount, sizes)


def taken_values(values: Tensor, action: Tensor, sizes: Sizes) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """(the values [choices, N, K] of the actions taken, vjp), without graph.

    `vjp` takes the gradient of a loss with respect to them, and returns that with respect to all values [N, A, K].

    Args:
        values: action values, float [N, A, K].
        action: int64 [N, choices], counted from 0.
        sizes: the number of values of each choice.
    """
    if (fast := action_values(values)) is not None and action.is_cpu:
        return fast.taken(values, action, sizes)
    index = flat_index(action, sizes)

    def vjp(grad: Tensor) -> Tensor:
        grad_values = torch.zeros_like(values)
        grad_values.flatten(0, 1).index_copy_(0, index, grad.flatten(0, 1))
        return grad_values

    return values_at(values, index), vjp
