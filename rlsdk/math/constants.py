"""Tensors of constant numbers, which are created once per device.

On the CPU, creating one takes as long as several operations. On a GPU, its copy waits for all operations before, and a CUDA
graph cannot contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def constant(values: Sequence[int], like: Tensor) -> Tensor:
    """The numbers as int64 [len(values)] on the device of `like`. The tensor must not be changed."""
    make = _made if _may_keep(like) else _made.__wrapped__
    return make(tuple(values), like.device)


def multiples(count: int, step: int, like: Tensor) -> Tensor:
    """0, step, 2 step, .. as int64 [count] on the device of `like`. The tensor must not be changed."""
    make = _multiples if _may_keep(like) else _multiples.__wrapped__
    return make(count, step, like.device)


def _may_keep(like: Tensor) -> bool:
    """Whether tensors that are made now hold numbers. Those of a tracer do not."""
    return type(like) is Tensor and not torch.compiler.is_compiling()


@lru_cache(256)
def _made(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


@lru_cache(16)
def _multiples(count: int, step: int, device: torch.device) -> Tensor:
    return torch.arange(0, count * step, step, device=device)
