"""Pure functions of value learning: targets, quantile regression, losses of values, constants of distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf

import torch
from torch import Tensor

from rlsdk.kernels.factory import action_values, pairwise_huber


def midpoints(count: int, like: Tensor) -> Tensor:
    """Midpoints (i + 1/2) / count of `count` equal probability intervals, [count], in the dtype and on the device of `like`."""
    return (torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) / count


@lru_cache(maxsize=64)
def _asymmetry(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """2 tau - 1 for tau = `midpoints(count)`, [count]. The tensor is cached: callers must not modify it."""
    return 2.0 * midpoints(count, torch.empty(0, dtype=dtype, device=device)) - 1.0


def quantile_huber_loss(
    current_quantiles: Tensor,
    target_quantiles: Tensor,
    cum_prob: Tensor | None = None,
    sum_over_quantiles: bool = True,
) -> Tensor:
    """The quantile Huber loss, 0-d, differentiable in `current_quantiles`.

    The loss of a row is the mean over j of rho_tau_i(y_j - z_i), summed or averaged over i, where
    rho_tau(d) = |tau - 1{d < 0}| * huber(d). The result is the mean over rows.

    Args:
        current_quantiles: z, float [N, K] or [N, C, K].
        target_quantiles: y, float [N, M], [N, 1, M] or [N, C, M].
        cum_prob: tau in (0, 1), [N, K], [N, 1, K] or [N, C, K]; None = midpoints of equal intervals.
        sum_over_quantiles: sum over i as in the paper, or average (as truncated quantile critics do).

    Raises:
        ValueError: the shapes of the arguments do not fit together.
    """
    if current_quantiles.dim() not in (2, 3) or target_quantiles.dim() not in (2, 3):
        shapes = f"{tuple(current_quantiles.shape)} and {tuple(target_quantiles.shape)}"
        raise ValueError(f"quantiles must be [N, K] or [N, C, K], targets [N, M], [N, 1, M] or [N, C, M]; got {shapes}")
    if len(current_quantiles) != len(target_quantiles):
        raise ValueError(f"{len(current_quantiles)} rows of quantiles, but {len(target_quantiles)} rows of targets")
    if current_quantiles.dim() == 3 and target_quantiles.dim() == 2:
        target_quantiles = target_quantiles.unsqueeze(1)
    if cum_prob is None:
        cum_prob = midpoints(current_quantiles.shape[-1], current_quantiles)
    elif cum_prob.dim() == 2 and current_quantiles.dim() == 3:
        cum_prob = cum_prob.unsqueeze(1)
    difference = target_quantiles.unsqueeze(-2) - current_quantiles.unsqueeze(-1)
    clipped = difference.clamp(-1.0, 1.0)
    huber = clipped * (difference - 0.5 * clipped)
    # the indicator is a constant of the loss, so no gradient flows through it
    weight = (cum_prob.unsqueeze(-1) - (difference.detach() < 0.0).to(huber.dtype)).abs()
    loss = weight * huber
    return loss.sum(-2).mean() if sum_over_quantiles else loss.mean()


def quantile_huber(
    current: Tensor,
    target: Tensor,
    *,
    sum_over_quantiles: bool,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(the loss of `quantile_huber_loss` with tau = `midpoints(K)`, 0-d; its gradient in closed form).

    The gradient is with respect to `current`. Let d = y_j - z_i, c = clamp(d, -1, 1) and e = d - c/2. The Huber function of d
    is c e, and d has the sign of c. With w = c + (2 tau_i - 1) |c|:
    dL/dz_i = -sum_j w / (2 count)   and   L = sum_ij w e / (2 count).
    count is the number of pairs (i, j) in all rows; with `sum_over_quantiles` it is divided by K.

    Args:
        current: z, float [.., N, K].
        target: y, float [N, M], or float [.., N, M] with the same leading dimensions as `current`.
        sum_over_quantiles: sum over i instead of averaging.
        weight: the weight of each row, float [N]; None = 1.
    """
    quantiles, size = current.shape[-1], current.numel() * target.shape[-1]
    factor = (0.5 * quantiles if sum_over_quantiles else 0.5) / size
    asymmetry = _asymmetry(quantiles, current.dtype, current.device)
    total, grad = pairwise_huber(current, target, asymmetry, weight)
    return total * factor, grad.mul_(-factor)


def td_error(current: Tensor, target: Tensor) -> Tensor:
    """The absolute TD error, float [N]: |mean of the target - mean of the prediction|, averaged over critics.

    Args:
        current: z, the predicted quantiles, float [N, K], or [C, N, K] of C critics.
        target: y, the target quantiles, float [N, M].
    """
    # the error of the means: quantiles of the same distribution differ by construction
    error = (target.mean(-1) - current.mean(-1)).abs()
    return error if error.dim() == 1 else error.mean(0)


# Values of discrete actions: the greedy action, and the target of Q-learning. Pure tensor functions.
#
# Action values have the shape [N, A, K]. A is the number of values of all choices of an action, one choice after the
# other. K is the number of entries per value: 1 for a mean return (arXiv:1312.5602), or K quantiles of the return
# (arXiv:1710.10044).

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
    # -inf instead of a large negative number: no value can be below it
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
    # the whole distribution of one action: a maximum per quantile would mix actions
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
        # copied and not added, because every position occurs once
        grad_values.flatten(0, 1).index_copy_(0, index, grad.flatten(0, 1))
        return grad_values

    return values_at(values, index), vjp


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
    # the sum over critics: each is trained as if it were alone
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


# Tensors of constant numbers, which are created once per device.
#
# On the CPU, creating one takes as long as several operations. On a GPU, its copy waits for all operations before, and
# a CUDA graph cannot contain it.


def constant(values: Sequence[int], like: Tensor) -> Tensor:
    """The numbers as int64 [len(values)] on the device of `like`. The tensor must not be changed."""
    make = _made if _may_keep(like) else _made.__wrapped__
    return make(tuple(values), like.device)


def multiples(count: int, step: int, like: Tensor) -> Tensor:
    """0, step, 2 step, .. as int64 [count] on the device of `like`. The tensor must not be changed."""
    make = _multiples if _may_keep(like) else _multiples.__wrapped__
    return make(count, step, like.device)


def _may_keep(like: Tensor) -> bool:
    """Whether tensors that are made now hold numbers. Those of a tracer do not."""
    return type(like) is Tensor and not torch.compiler.is_compiling()


@lru_cache(256)
def _made(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


@lru_cache(16)
def _multiples(count: int, step: int, device: torch.device) -> Tensor:
    return torch.arange(0, count * step, step, device=device)
