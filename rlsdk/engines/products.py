"""Matrix products of tensors on the processor, by the fastest kernels that torch carries for it.

torch multiplies float32 matrices by MKL, which gives processors of AMD its AVX2 kernels even where they have AVX-512. oneDNN,
by which torch convolves, looks at what the processor can do instead: measured there it multiplies 256 x 256 matrices at 215
GFLOP/s, MKL at 103 and numpy at 116, with the same rounding. The choice depends on the processor and on sizes alone, so that
seeds repeat to the bit.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rlsdk.engines.structure import GLOBAL_HOOKS

WORTH = 1_500_000
"""From so many multiplications on oneDNN is ahead, 1.2 to 2.1 times as fast; a call of it costs 10 us more."""
ROWS = 8
"""For fewer rows it would rather copy the other matrix than multiply."""
SUMMED = 64
"""What is wanted in memory that is there is copied, which pays from sums of so many products on."""
LARGE = 2**18
"""Weights of so many numbers do not stay in a cache between two steps."""


def affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """x [N, I] or [C, N, I] times matrix [I, O] or [C, I, O] plus bias [1, O] or [C, 1, O] -> [N, O] or [C, N, O]."""
    if matrix.ndim == 3:
        return torch.baddbmm(bias, x.expand(len(matrix), -1, -1), matrix)
    return _linear(x, matrix.mT, bias[0]) if is_quick(x, matrix) else torch.addmm(bias, x, matrix)


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """[N, K] or [C, N, K] times [K, M] or [C, K, M] -> [N, M] or [C, N, M]."""
    if not is_quick(left, right) or (out is not None and left.shape[-1] < SUMMED):
        return torch.matmul(left, right, out=out)
    found = _product(left, right)
    return found if out is None else out.copy_(found)


def dense(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What modules give one after another, with a graph where there is one; linear layers by the same products."""
    theirs = _is_transformed() or x.dim() != 2
    for module in modules:
        if theirs or _is_hooked(module):
            x = module(x)
        elif type(module) is nn.Sequential:
            x = dense(module, x)
        else:
            plain = type(module) is nn.Linear and module.bias is not None
            x = _linear_layer(x, cast("nn.Linear", module)) if plain else module(x)
    return x


def _linear_layer(x: Tensor, layer: nn.Linear) -> Tensor:
    weight = layer.weight
    if is_quick(x, weight.mT):
        found: Tensor = _Product.apply(x, weight.mT)  # type: ignore[no-untyped-call]
        return found + layer.bias
    if _is_acting(x, weight):
        return torch.from_numpy(np.matmul(x.detach().numpy(), weight.detach().numpy().T)) + layer.bias
    return torch.nn.functional.linear(x, weight, layer.bias)


def _is_transformed() -> bool:
    """Whether torch compiles or exports, maybe for other machines, or differentiates by `torch.func` or forwards: it knows
    its own layers."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.maybe_current_level() is not None
        or forward_ad._current_level >= 0
    )


def _is_hooked(module: nn.Module) -> bool:
    """Whether something wants to see the module called."""
    own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(own) or any(GLOBAL_HOOKS) or "forward" in vars(module)


def _is_acting(x: Tensor, weight: Tensor) -> bool:
    """Few rows and no graph: numpy reads weights that lie in memory, not in a cache, in two thirds of the time."""
    few = x.is_cpu and x.shape[0] <= ROWS and x.dtype is torch.float32 and not torch.is_grad_enabled()
    return few and weight.numel() >= LARGE


def is_quick(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN multiplies [N, K] with [K, M] faster."""
    return (
        AHEAD
        and left.ndim == right.ndim == 2
        and left.dtype is torch.float32
        and left.is_cpu
        and left.shape[0] >= ROWS
        and left.shape[0] * right.shape[0] * right.shape[1] >= WORTH
    )


class _Product(torch.autograd.Function):
    """[N, K] times [K, M], differentiable as often as one likes."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return product(left, right)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        left, right = ctx.saved_tensors
        to_left, to_right = ctx.needs_input_grad
        return (
            _Product.apply(slope, right.mT) if to_left else None,  # type: ignore[no-untyped-call]
            _Product.apply(left.mT, slope) if to_right else None,  # type: ignore[no-untyped-call]
        )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """oneDNN copies a first matrix that does not lie row by row: the smaller one, then."""
    if left.is_contiguous() or left.numel() <= right.numel():
        return _linear(left, right.mT)
    return _linear(right.mT, left).mT


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [N, I] and weight [O, I] -> [N, O]. What torch.compile calls where it has dense layers on processors."""
    return cast("Tensor", torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def has_onednn() -> bool:
    """Whether this build of torch carries it."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _ahead() -> bool:
    """Whether MKL keeps this processor from AVX-512, and this torch has oneDNN."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not has_onednn():
        return False
    told = Path("/proc/cpuinfo")  # `platform.processor` is empty on Linux
    return "AuthenticAMD" in (told.read_text(encoding="utf-8") if told.exists() else platform.processor())


AHEAD = _ahead()
