"""The step of ARS: a pure tensor function. Source: Mania, Guy, Recht 2018, arXiv:1803.07055, algorithm 1."""

from __future__ import annotations

from torch import Tensor

EPSILON = 1e-6


def search_step(deltas: Tensor, plus: Tensor, minus: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return (the direction [D], the standard deviation sigma_R of the scores used).

    The direction is sum_k (r_k+ - r_k-) delta_k / (b sigma_R) over the b best of K random directions.

    Args:
        deltas: random directions, float [K, D].
        plus: scores of parameters + std * delta, float [K].
        minus: scores of parameters - std * delta, float [K].
        top: b; directions are ranked by the better of their two scores.
    """
    best = plus.maximum(minus).argsort(descending=True)[:top]
    used_plus, used_minus = plus[best], minus[best]
    deviation = used_plus.new_tensor([*used_plus.tolist(), *used_minus.tolist()]).std()
    return (used_plus - used_minus) @ deltas[best] / (top * deviation + EPSILON), deviation
