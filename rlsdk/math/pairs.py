"""Sums over all pairs of predicted quantiles and target atoms, most of the cost of learning quantiles.

In memory that is kept between calls, in pieces that fit the caches; fused by the compiler, without temporaries; or, where there
are many on a CPU, without visiting the pairs at all.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlsdk.compilation import compiled
from rlsdk.math.scratch import Scratch
from rlsdk.math.sorted_sums import COMPILED_PAIRS_PER_KEY, PAIRS_PER_KEY, sorted_sums, worth_sorting

PIECE = 640_000
"""Temporaries of more numbers leave the caches: 64 rows of 200 x 200 took 2.4 ms in one piece, 1.5 ms in several."""


def pair_sums(
    current: Tensor, target: Tensor, tilt: Tensor, weight: Tensor | None, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """(sum_ij w e over all rows, 0-d; sum_j w, [.., N, K]) with d = y_j - z_i, c = clamp(d, -1, 1), e = d - c / 2 and
    w = (c + tilt_i |c|) times the row's weight.

    Args:
        current: z, float [.., N, K].
        target: y, float [N, M], or with the dimensions in front that `current` has.
        tilt: float [K].
        weight: float [N]; None = 1.
        scratch: for three temporaries [.., N, K, M].
    """
    fused = compiled(_fused)
    if worth_sorting(current, target, PAIRS_PER_KEY if fused is None else COMPILED_PAIRS_PER_KEY):
        return sorted_sums(current, target, tilt, weight)
    if fused is not None:
        sums: tuple[Tensor, Tensor] = fused(current, target, tilt, weight)
        return sums
    size = current.numel() * target.shape[-1]
    if size <= PIECE:
        return _kept(current, target, tilt, weight, scratch)
    pieces = math.ceil(size / PIECE)
    rows = math.ceil(current.shape[-2] / pieces)
    weights = [None] * pieces if weight is None else torch.split(weight, rows)
    parts = zip(torch.split(current, rows, -2), torch.split(target, rows, -2), weights, strict=False)
    totals, slopes = zip(*(_kept(z, y, tilt, row, scratch) for z, y, row in parts), strict=True)
    return torch.stack(totals).sum(), torch.cat(slopes, -2)


def _kept(
    current: Tensor, target: Tensor, tilt: Tensor, weight: Tensor | None, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    shape = (*current.shape, target.shape[-1])
    clipped, excess, slope = (scratch.get(name, shape, current) for name in ("clipped", "excess", "slope"))
    torch.sub(target.unsqueeze(-2), current.unsqueeze(-1), out=excess)
    torch.clamp(excess, -1.0, 1.0, out=clipped)
    excess.sub_(clipped, alpha=0.5)
    torch.addcmul(clipped, tilt.unsqueeze(-1), torch.abs(clipped, out=slope), out=slope)
    if weight is not None:
        slope.mul_(weight[:, None, None])
    return torch.dot(slope.view(-1), excess.view(-1)), slope.sum(-1)


def _fused(current: Tensor, target: Tensor, tilt: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    excess = target.unsqueeze(-2) - current.unsqueeze(-1)
    clipped = excess.clamp(-1.0, 1.0)
    slope = clipped + tilt.unsqueeze(-1) * clipped.abs()
    if weight is not None:
        slope = slope * weight[:, None, None]
    return (slope * (excess - 0.5 * clipped)).sum(), slope.sum(-1)
