"""Advantages and returns of rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

FEW = 16
"""Up to so many environments a loop over Python's floats is faster than one over small tensors."""


def gae(reward: Tensor, value: Tensor, next_value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Generalised advantage estimates [T, B]. Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.

    delta_t = r_t + discount_t V(s_{t+1}) - V(s_t);  A_t = delta_t + trace_t A_{t+1}

    Args:
        reward: float [T, B].
        value: V of the observations acted on, float [T, B].
        next_value: V of what each step led to: the next row, or the true last observation where an episode ended,
            float [T, B].
        discount: gamma, and 0 where the episode terminated (a time limit leaves it alone), float [T, B].
        trace: gamma * lambda, and 0 where the next row is no successor (any end of an episode), float [T, B].
    """
    delta = torch.addcmul(reward, discount, next_value).sub_(value)
    if delta.shape[1] <= FEW and delta.is_cpu:
        return delta.new_tensor([_backwards(*pair) for pair in zip(delta.T.tolist(), trace.T.tolist(), strict=True)]).T
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    rows = list(zip(delta.unbind(0), trace.unbind(0), advantage.unbind(0), strict=True))
    for error, weight, target in reversed(rows):
        following = torch.addcmul(error, weight, following, out=target)
    return advantage


def _backwards(delta: list[float], trace: list[float]) -> list[float]:
    """The same recursion for one environment."""
    following, advantage = 0.0, [0.0] * len(delta)
    for t in reversed(range(len(delta))):
        advantage[t] = following = delta[t] + trace[t] * following
    return advantage
