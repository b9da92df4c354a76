"""Sums over all pairs of predicted quantiles and target atoms, most of the cost of learning quantiles.

In memory that is reused, in segments that fit the caches; or, where there are many on a CPU, without visiting the pairs at all.
"""

from __future__ import annotations

import math
from threading import local

import torch
from torch import Tensor

from rlsdk.kernels.reference import pairwise_huber as by_torch
from rlsdk.kernels.sorted_huber import sorted_huber

SEGMENT = 640_000
"""Temporaries of more numbers leave the caches: 64 rows of 200 x 200 took 2.4 ms in one segment, 1.5 ms in several."""
PAIRS_PER_KEY = 21
"""Visiting this many pairs takes as long as sorting one number. 64 rows, by pairs and sorted: 200 quantiles and 200 atoms 1.4
and 0.60 ms, 100 and 100 0.36 and 0.32 ms."""
_memory = local()
"""Of each thread: fresh pages from the system cost more than the arithmetic on them."""


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """(sum, 0-d; gradients [.., N, K]), as `rlsdk.kernels.reference.pairwise_huber`."""
    if worth_sorting(current, target):
        return sorted_huber(current, target, asymmetry, weight)
    if current.requires_grad or target.requires_grad:
        return by_torch(current, target, asymmetry, weight)
    size = current.numel() * target.shape[-1]
    if size <= SEGMENT:
        return _in_memory(current, target, asymmetry, weight)
    return _in_segments(current, target, asymmetry, weight)


def _in_segments(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """As `pairwise_huber`, a part of the rows [N] at a time."""
    size = current.numel() * target.shape[-1]
    segments = math.ceil(size / SEGMENT)
    rows = math.ceil(current.shape[-2] / segments)
    weights = [None] * segments if weight is None else torch.split(weight, rows)
    parts = zip(torch.split(current, rows, -2), torch.split(target, rows, -2), weights, strict=False)
    totals, grads = zip(*(_in_memory(z, y, asymmetry, row) for z, y, row in parts), strict=True)
    return torch.stack(totals).sum(), torch.cat(grads, -2)


def worth_sorting(current: Tensor, target: Tensor) -> bool:
    """Whether sorting is the faster way for `current` [.., K] and `target` [.., M], and one at all."""
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
    """Three uninitialised tensors [*shape], in the memory of the thread's earlier calls where that is large enough."""
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
