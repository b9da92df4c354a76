"""Retrace targets of action values: a pure tensor function. Source: Munos et al. 2016, arXiv:1606.02647."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlsdk.math import discounted_sums


@dataclass(frozen=True, slots=True, eq=False)
class Estimated:
    """The estimates of the current network for steps [T, N]."""

    taken: Tensor  # Q(x_t, a_t), float [T, N]
    value: Tensor  # V(x_t), float [T, N]
    after: Tensor  # V of the next observation; read only where `goes_on` is False, float [T, N]
    ratio: Tensor  # pi(a_t|x_t) / mu(a_t|x_t), float [T, N]


def retrace(reward: Tensor, discount: Tensor, goes_on: Tensor, estimated: Estimated) -> Tensor:
    """Q_ret [T, N], equation 5 of arXiv:1611.01224:

    Q_ret(x_t, a_t) = r_t + discount_t (min(1, rho_{t+1}) (Q_ret(x_{t+1}, a_{t+1}) - Q(x_{t+1}, a_{t+1})) + V(x_{t+1}))

    Args:
        reward: float [T, N].
        discount: gamma, or 0 where the episode terminated, float [T, N]. It is gamma where a time limit ended it.
        goes_on: bool [T, N], whether the next row is the next step of the same episode. Elsewhere, and in the last row,
            the target is r_t + discount_t `after`_t.
        estimated: the estimates of the current network.
    """
    inside = torch.cat([goes_on[:-1], torch.zeros_like(goes_on[:1])])
    value_after = torch.where(inside, torch.cat([estimated.value[1:], estimated.after[-1:]]), estimated.after)
    error = reward + discount * value_after - estimated.taken
    trace = torch.cat([estimated.ratio[1:].clamp(max=1.0), torch.zeros_like(reward[:1])])
    # with e_t = Q_ret_t - Q_t the recursion is e_t = error_t + discount_t trace_{t+1} e_{t+1}
    return estimated.taken + discounted_sums(error, discount * trace * inside)
