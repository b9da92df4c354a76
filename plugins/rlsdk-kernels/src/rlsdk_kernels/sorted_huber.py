"""Sums over all pairs of predicted quantiles and target atoms, computed by sorting instead of visiting the pairs.

For a quantile z, the Huber function of y - z has four formulas, one per segment of atoms y. The segments are divided at
z - 1, z and z + 1. The result of a segment follows from the number of its atoms, their sum and the sum of their
squares. These are differences of prefix sums over the sorted atoms. A row takes (K + M) log(K + M) steps instead of K
M. The sums are float64, because small differences of prefix sums lose digits.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
