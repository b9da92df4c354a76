"""Losses of predicted values and their gradients in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.kernels.factory import action_values


def smooth_l1(values: Tensor, target: Tensor, *, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(mean of huber(y - z), 0-d; its gradient with respect to `values`), the loss of DQN (doi:10.1038/nature14236).

    Args:
        values: z, the predictions, float [.., N, K].
        target: y, of the same shape.
        weight: the weight of each row, float [N]; None = 1.
    """
    if values.shape == target.shape and (fast := action_values(values, target, weight)) is not None:
        return fast.smooth_l1(values, target, weight)
    error = values - target
    clipped = error.clamp(-1.0, 1.0)
    loss, grad = clipped * (error - 0.5 * clipped), clipped / clipped.numel()
    return _weighted(loss, grad, weight)


def half_squared_error(values: Tensor, target: Tensor, *, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(sum over critics of mean 1/2 (y - z)^2, 0-d; its gradient), the loss of SAC (arXiv:1812.05905, equation 5).

    Args:
        values: z, the predictions of C critics, float [C, N, K].
        target: y, the target of all critics, float [N, K].
        weight: the weight of each row, float [N]; None = 1.
    """
    error = values - target
    loss, total = _weighted(0.5 * error.square(), error / target.numel(), weight)
    return loss * len(values), total


def squared_error(values: Tensor, target: Tensor, *, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(sum over critics of mean (y - z)^2, 0-d; its gradient), the loss of TD3 (arXiv:1802.09477, algorithm 1).

    Args:
        values: z, the predictions of C critics, float [C, N, K].
        target: y, the target of all critics, float [N, K].
        weight: the weight of each row, float [N]; None = 1.
    """
    loss, grad = half_squared_error(values, target, weight=weight)
    return 2.0 * loss, 2.0 * grad


def minimum_value(values: Tensor) -> tuple[Tensor, Tensor]:
    """(mean over rows of the smallest critic's value, 0-d; its gradient), for values float [C, N, 1] (arXiv:1812.05905)."""
    smallest, chosen = values.min(0, keepdim=True)
    return smallest.mean(), torch.zeros_like(values).scatter_(0, chosen, 1.0 / smallest.numel())


def clipped_double_q(next_values: Tensor, bonus: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """The target y = r + discount * (min over critics of Q' + bonus), float [N, 1] (arXiv:1802.09477, equation 10).

    Args:
        next_values: Q', the values of the target critics at the next action, float [C, N, 1].
        bonus: added to the next value, -alpha log pi(a'|s') for SAC and 0 for TD3, float [N] or 0-d.
        reward: float [N].
        discount: gamma, or 0 where the episode terminated (not at a time limit), float [N].
    """
    following = next_values.amin(0).squeeze(-1) + bonus
    return (reward + discount * following).unsqueeze(-1)


def _weighted(loss: Tensor, grad: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """(the mean of `loss` [.., N, K], `grad`), after each row of both is multiplied by its `weight` [N]."""
    if weight is None:
        return loss.mean(), grad
    rows = weight.unsqueeze(-1)
    return (loss * rows).mean(), grad * rows
