"""Quantile regression. Source: Dabney et al. 2017, arXiv:1710.10044, equations 9 and 10 with kappa = 1."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from rlsdk.kernels.reference import pairwise_huber
from rlsdk.kernels.table import offered


def midpoints(count: int, like: Tensor) -> Tensor:
    """Midpoints (i + 1/2) / count of `count` equal probability intervals, [count], in the dtype and on the device of `like`."""
    return (torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) / count


@lru_cache(maxsize=64)
def _asymmetry(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """2 tau - 1 for tau = `midpoints(count)`, [count]. The tensor is cached: callers must not modify it."""
    return 2.0 * midpoints(count, torch.empty(0, dtype=dtype, device=device)) - 1.0


def smallest(values: Tensor, count: int) -> Tensor:
    """The `count` smallest entries of each row of float [N, M], in any order, [N, count]. NaN counts as the largest."""
    if not values.is_cpu or values.requires_grad or torch.compiler.is_compiling():
        return values.topk(count, dim=-1, largest=False, sorted=False).values
    return torch.from_numpy(np.partition(values.numpy(), count - 1)[:, :count])  # a quarter of the time of `topk`


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
    asymmetry, choose = _asymmetry(quantiles, current.dtype, current.device), offered("pairwise_huber")
    found = None if choose is None else choose(current, target, asymmetry, weight)
    total, grad = pairwise_huber(current, target, asymmetry, weight) if found is None else found
    return total * factor, grad.mul_(-factor)


def td_error(current: Tensor, target: Tensor) -> Tensor:
    """The absolute TD error, float [N]: |mean of the target - mean of the prediction|, averaged over critics.

    Args:
        current: z, the predicted quantiles, float [N, K], or [C, N, K] of C critics.
        target: y, the target quantiles, float [N, M].
    """
    error = (target.mean(-1) - current.mean(-1)).abs()
    return error if error.dim() == 1 else error.mean(0)
