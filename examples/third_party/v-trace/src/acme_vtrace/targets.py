"""V-trace targets: pure tensor functions. Source: Espeholt et al. 2018, arXiv:1802.01561, section 4.1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlsdk.math import discounted_sums


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """The targets of the values, and the advantages for the policy."""

    value: Tensor  # v_s, float [T, N]
    advantage: Tensor  # rho_s (r_s + gamma v_{s+1} - V(x_s)), float [T, N]


@dataclass(frozen=True, slots=True)
class Clips:
    """The bounds of the importance weights."""

    rho: float  # bound of the weight of a temporal difference: decides which policy's values are learned
    c: float  # bound of the weights of later steps: decides how fast the values converge


def v_trace(
    ratio: Tensor, reward: Tensor, discount: Tensor, values: tuple[Tensor, Tensor], goes_on: Tensor, clips: Clips
) -> Targets:
    """The targets of equation 1: v_s = V(x_s) + sum_t gamma^{t-s} (prod c_i) rho_t (r_t + gamma V(x_{t+1}) - V(x_t)).

    Args:
        ratio: pi(a|x) / mu(a|x), float [T, N].
        reward: float [T, N].
        discount: gamma, or 0 where the episode terminated, float [T, N].
        values: (V of the observations, V of the next observations), each float [T, N].
        goes_on: bool [T, N], whether the next row is the next step of the same episode; False in the last row.
        clips: bounds of rho and c.
    """
    value, next_value = values
    rho, c = ratio.clamp(max=clips.rho), ratio.clamp(max=clips.c)
    difference = rho * (reward + discount * next_value - value)
    above = discounted_sums(difference, discount * c * goes_on)  # v_s - V(x_s)
    after = torch.where(goes_on, torch.cat([above[1:], above[:1]]), 0.0) + next_value  # v_{s+1}
    return Targets(value + above, rho * (reward + discount * after - value))
