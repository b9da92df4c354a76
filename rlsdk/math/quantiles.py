"""Quantile regression. Source: Dabney et al. 2017, arXiv:1710.10044, equations 9 and 10 with kappa = 1."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from rlsdk.kernels import losses


def midpoints(count: int, like: Tensor) -> Tensor:
    """Midpoints (i + 1/2) / count of `count` equal probability intervals, [count], in the dtype and on the device of `like`."""
    return (torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) / count


@lru_cache(maxsize=64)
def _asymmetry(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """2 tau - 1 of `midpoints`, [count]; not to be changed."""
    return 2.0 * midpoints(count, torch.empty(0, dtype=dtype, device=device)) - 1.0


def quantile_huber_loss(
    current_quantiles: Tensor,
    target_quantiles: Tensor,
    cum_prob: Tensor | None = None,
    sum_over_quantiles: bool = True,
) -> Tensor:
    """The quantile Huber loss, 0-d, differentiable in `current_quantiles`.

    mean over j of rho_tau_i(y_j - z_i), with rho_tau(d) = |tau - 1{d < 0}| * huber(d), summed over i (or averaged).

    Args:
        current_quantiles: z, float [N, K] or [N, C, K].
        target_quantiles: y, float [N, M], [N, 1, M] or [N, C, M].
        cum_prob: tau in (0, 1), [N, K], [N, 1, K] or [N, C, K]; None = midpoints of equal intervals.
        sum_over_quantiles: sum over i as in the paper, or average (as truncated quantile critics do).

    Raises:
        ValueError: dimensions that do not fit.
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
    """The same loss (0-d) and its gradient with respect to `current`, in closed form.

    With d = y_j - z_i, c = clamp(d, -1, 1), e = d - c/2, the Huber function of d is c e and its sign c's, so with
    w = c + (2 tau_i - 1) |c|:   dL/dz_i = -sum_j w / (2 count)   and   L = sum_ij w e / (2 count).

    Args:
        current: z, float [.., N, K].
        target: y, float [N, M], or with the dimensions in front that `current` has.
        sum_over_quantiles: sum over i instead of averaging.
        weight: of each row, float [N]; None = 1.
    """
    quantiles, size = current.shape[-1], current.numel() * target.shape[-1]
    factor = (0.5 * quantiles if sum_over_quantiles else 0.5) / size
    total, grad = losses.pairwise_huber(current, target, _asymmetry(quantiles, current.dtype, current.device), weight)
    return total * factor, grad.mul_(-factor)


def td_error(current: Tensor, target: Tensor) -> Tensor:
    """How wrong values were, float [N]: |mean of the target - mean of the prediction|, averaged over critics.

    Args:
        current: z, float [N, K], or [C, N, K] of several critics.
        target: y, float [N, M].
    """
    error = (target.mean(-1) - current.mean(-1)).abs()
    return error if error.dim() == 1 else error.mean(0)
