"""Losses, computed by the fastest kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.switch import exists, is_on


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.kernels.reference.pairwise_huber`."""
    function = _fastest() if is_on() else by_torch.pairwise_huber
    return function(current, target, asymmetry, weight)


@cache
def _fastest() -> Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]:
    if not exists("pairwise_huber"):
        return by_torch.pairwise_huber
    from rlsdk.kernels.pairwise_huber import pairwise_huber as by_kernel

    return by_kernel
