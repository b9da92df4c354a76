"""Losses, computed by the fastest kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.switch import exists, may_compile, state


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.kernels.reference.pairwise_huber`."""
    return _fastest(state())(current, target, asymmetry, weight)


@cache
def _fastest(now: str) -> Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]:
    if now == "off" or not exists("pairwise_huber"):
        return by_torch.pairwise_huber
    if not torch.compiler.is_compiling() and may_compile() and exists("compiled_huber"):
        from rlsdk.kernels.compiled_huber import pairwise_huber as by_compiled_code

        return by_compiled_code
    from rlsdk.kernels.pairwise_huber import pairwise_huber as by_kernel

    return by_kernel
