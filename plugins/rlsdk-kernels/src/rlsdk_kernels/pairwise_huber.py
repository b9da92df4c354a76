"""Sums over all pairs of predicted quantiles and target atoms, which take most of the time of learning quantiles.

They are computed in reused memory and in segments that fit the caches. On a CPU, many pairs are summed by sorting
instead.
"""

from __future__ import annotations

import math
from threading import local

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Sums over all pairs of predicted quantiles and target atoms, computed by sorting instead of visiting the pairs.

Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]


@np.errstate(invalid="ignore", over="ignore")  # numbers that are not finite appear in the result
def sorted_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]), the same as torch."""
    lead, quantiles = current.shape[:-1], current.shape[-1]
    atoms: NDArray[np.float32] = np.sort(target.expand(*lead, -1).reshape(-1, target.shape[-1]).numpy(), -1)
    shift = atoms[:, :1].astype(np.float64)  # makes squares small, and the first atom 0
    z, y = current.reshape(-1, quantiles).numpy() - shift, atoms - shift
    edges = _edges(z, y)
    count = np.diff(edges, axis=0).astype(np.float64)  # of the four segments, [4, R, K], like all below
    total, squares = _between(edges, y), _between(edges, y * y)[1:3]
    products = count * z
    away = np.abs(total - products)  # sums of |y - z|, whose sign is constant in a segment
    squares += z * (products - 2.0 * total)[1:3]
    far, near = count[::3], away[1:3]
    huber = away[::3] + 0.5 * (squares - far)  # left and right of z, [2, R, K]
    sides = np.stack([1.0 - asymmetry.numpy(), 1.0 + asymmetry.numpy()])[:, None]
    if weight is not None:
        sides = sides * weight.expand(lead).reshape(-1, 1).numpy()
    left, right = (near + far) * sides
    grads = torch.from_numpy((right - left).astype(np.float32)).view(current.shape)
    return torch.tensor((huber * sides).sum(), dtype=current.dtype), grads


def _edges(z: Numbers, y: Numbers) -> Counts:
    """Return the ends of the four segments of each z [R, K] among the ascending atoms y [R, M], of which the first is
    0.

    They are indices [5, R, K] into a flat array with M + 1 entries per row.

    All numbers of a row are sorted together. The lowest bits of each contain its index, which changes it less than
    rounding. They are sorted as integers, so that numbers that are not finite need no special case. Negative numbers
    are then in another order, which has no effect, because atoms are not negative.
    """
    (rows, quantiles), atoms = z.shape, y.shape[1]
    keys = np.concatenate([y, z - 1.0, z, z + 1.0], axis=1)
    width = keys.shape[1]
    bits, mask = keys.view(np.int64), (1 << width.bit_length()) - 1
    bits &= ~mask
    bits |= np.arange(width)
    bits.sort(axis=1)
    place = bits & mask
    below = np.empty(keys.size, np.int64)
    below[(place + _starts(rows, width)).ravel()] = np.cumsum(place < atoms, axis=1, dtype=np.int32).ravel()
    edges = np.empty((5, rows, quantiles), np.int64)
    edges[0], edges[4] = 0, atoms
    edges[1:4] = below.reshape(rows, width)[:, atoms:].reshape(rows, 3, quantiles).swapaxes(0, 1)
    edges += _starts(rows, atoms + 1)
    return edges


def _between(edges: Counts, values: Numbers) -> Numbers:
    """Sums of `values` [R, M] from each edge to the next, [4, R, K]."""
    rows, atoms = values.shape
    prefix = np.zeros((rows, atoms + 1))
    np.cumsum(values, axis=1, out=prefix[:, 1:])
    return np.diff(prefix.ravel().take(edges), axis=0)


def _starts(rows: int, width: int) -> Counts:
    """The index of the first entry of each row in a flat array, [R, 1]."""
    return np.arange(0, rows * width, width)[:, None]


SEGMENT = 640_000
"""The largest number of entries of temporaries that fit the caches.

64 rows of 200 x 200 took 2.4 ms in one segment and 1.5 ms in several.
"""
PAIRS_PER_KEY = 21
"""Computing this number of pairs takes as long as sorting one number.

64 rows took, by pairs and sorted: 1.4 and 0.60 ms for 200 quantiles and 200 atoms, 0.36 and 0.32 ms for 100 and 100.
"""
_memory = local()
"""The reused memory of each thread. New memory pages from the operating system cost more than the arithmetic on them."""


def pairwise_huber(
    current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Return (sum, 0-d; gradients [.., N, K]), the same as torch; None if torch must compute, for autograd."""
    if worth_sorting(current, target):
        return sorted_huber(current, target, asymmetry, weight)
    if current.requires_grad or target.requires_grad:
        return None
    size = current.numel() * target.shape[-1]
    if size <= SEGMENT:
        return _in_memory(current, target, asymmetry, weight)
    return _in_segments(current, target, asymmetry, weight)


def _in_segments(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same as `pairwise_huber`, computed for a part of the rows [N] at a time."""
    size = current.numel() * target.shape[-1]
    segments = math.ceil(size / SEGMENT)
    rows = math.ceil(current.shape[-2] / segments)
    weights = [None] * segments if weight is None else torch.split(weight, rows)
    parts = zip(torch.split(current, rows, -2), torch.split(target, rows, -2), weights, strict=False)
    totals, grads = zip(*(_in_memory(z, y, asymmetry, row) for z, y, row in parts), strict=True)
    return torch.stack(totals).sum(), torch.cat(grads, -2)


def worth_sorting(current: Tensor, target: Tensor) -> bool:
    """Whether sorting is possible and faster for `current` [.., K] and `target` [.., M]."""
    quantiles, atoms = current.shape[-1], target.shape[-1]
    if quantiles * atoms <= PAIRS_PER_KEY * (atoms + 3 * quantiles) or torch.compiler.is_compiling():
        return False
    return current.is_cpu and current.dtype == torch.float32 and not (current.requires_grad or target.requires_grad)


def _in_memory(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    clipped, excess, grad = _temporaries((*current.shape, target.shape[-1]), current)
    torch.sub(target.unsqueeze(-2), current.unsqueeze(-1), out=excess)
    torch.clamp(excess, -1.0, 1.0, out=clipped)
    excess.sub_(clipped, alpha=0.5)
    torch.addcmul(clipped, asymmetry.unsqueeze(-1), torch.abs(clipped, out=grad), out=grad)
    if weight is not None:
        grad.mul_(weight[:, None, None])
    return torch.dot(grad.view(-1), excess.view(-1)), grad.sum(-1)


def _temporaries(shape: tuple[int, ...], like: Tensor) -> list[Tensor]:
    """Return three uninitialized tensors [*shape], in the memory of earlier calls of the thread if it is large enough."""
    key, size = (shape, like.dtype, like.device), math.prod(shape)
    known: tuple[object, list[Tensor]] | None = getattr(_memory, "views", None)
    if known is not None and known[0] == key:
        return known[1]
    memory: list[Tensor] = getattr(_memory, "numbers", [])
    if not memory or (memory[0].dtype, memory[0].device) != key[1:] or len(memory[0]) < size:
        memory = _memory.numbers = [like.new_empty(size) for _ in range(3)]
    views = [numbers[:size].view(shape) for numbers in memory]
    _memory.views = key, views
    return views
