"""Advantages and returns of rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

FEW = 16
"""Up to this number of environments, a loop over Python floats is faster than a loop over small tensors."""


def gae(reward: Tensor, value: Tensor, next_value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Generalised advantage estimates [T, B]. Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.

    delta_t = r_t + discount_t V(s_{t+1}) - V(s_t);  A_t = delta_t + trace_t A_{t+1}

    Args:
        reward: float [T, B].
        value: V(s_t), the values of the observations acted on, float [T, B].
        next_value: V(s_{t+1}), the values of the next observations, float [T, B]. Where an episode ended, it is the value of
            that episode's last observation.
        discount: gamma, or 0 where the episode terminated (gamma at a time limit), float [T, B].
        trace: gamma * lambda, or 0 where the episode ended for any reason, float [T, B].
    """
    return discounted_sums(torch.addcmul(reward, discount, next_value).sub_(value), trace)


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """The sums S_t = value_t + weight_t S_{t+1}, computed backwards from S_T = 0; all float [T, B]."""
    if value.shape[1] <= FEW and value.is_cpu:
        columns = zip(value.numpy(force=True).T.tolist(), weight.numpy(force=True).T.tolist(), strict=True)
        return value.new_tensor([_backwards(*column) for column in columns]).T
    sums = torch.empty_like(value)
    following = torch.zeros_like(value[0])
    rows = list(zip(value.unbind(0), weight.unbind(0), sums.unbind(0), strict=True))
    for own, share, target in reversed(rows):
        following = torch.addcmul(own, share, following, out=target)
    return sums


def _backwards(value: list[float], weight: list[float]) -> list[float]:
    """`discounted_sums` for one environment."""
    following, sums = 0.0, [0.0] * len(value)
    for t in reversed(range(len(value))):
        sums[t] = following = value[t] + weight[t] * following
    return sums


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target), 0-d, for arguments float [N].

    1 is a perfect prediction, 0 is as good as predicting the mean. If the target is constant, the result is 0.
    """
    spread, rest = torch.stack((target, target - prediction)).var(1, correction=0).tolist()
    return target.new_full((), 1.0 - rest / spread if spread > 0.0 else 0.0)
