"""Advantages and returns of rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.kernels import returns


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
    return returns.discounted_sums(value, weight)


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target), 0-d, for arguments float [N].

    1 is a perfect prediction, 0 is as good as predicting the mean. If the target is constant, the result is 0.
    """
    return returns.explained_variance(prediction, target)
