"""The operations of a dense network in torch.

torch multiplies float32 matrices with MKL, which uses AVX2 on AMD processors even if they have AVX-512. oneDNN, which
torch uses for convolutions, examines the capabilities of the processor instead. On such a processor it multiplied 256 x
256 matrices at 215 GFLOP/s, MKL at 103 and numpy at 116, with the same rounding. The choice depends only on the
processor and on sizes, so runs with the same seed are equal bit by bit.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk_kernels.compiled_library import has_onednn, is_ahead_of_mkl
from rlsdk_kernels.numpy_backend import NUMPY, Activation, Array, Backend, relu_vjp, tanh_vjp

NUMPY_WIDTH = 128
"""Up to this width of layers, numpy is faster than torch: its calls take a third of the time, and the arithmetic is small."""
WORTH = 1_500_000
"""From this number of multiplications on, oneDNN is 1.2 to 2.1 times as fast. A call of it costs 10 us more."""
ROWS = 8
"""oneDNN is not used for fewer rows, because it would spend its time copying the other matrix."""
SUMMED = 64
"""With `out`, the result of oneDNN is copied, which is worthwhile from this inner size on."""


def affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """Return x matrix + bias on the CPU, [N, O] or [C, N, O].

    x is [N, I] or [C, N, I], matrix [I, O] or [C, I, O], bias [1, O] or [C, 1, O].
    """
    if matrix.ndim == 3:
        return torch.baddbmm(bias, x.expand(matrix.shape[0], -1, -1), matrix)
    if AHEAD and (rows := x.shape[0]) >= ROWS and rows * matrix.numel() >= WORTH and x.dtype is torch.float32:
        return _linear(x, matrix.mT, bias[0], "none", [], "")
    return torch.addmm(bias, x, matrix)


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """[N, K] or [C, N, K] times [K, M] or [C, K, M] -> [N, M] or [C, N, M], on the CPU."""
    may = AHEAD and left.ndim == 2 and left.shape[0] >= ROWS and left.dtype is torch.float32
    if not may or left.shape[0] * right.numel() < WORTH or (out is not None and left.shape[-1] < SUMMED):
        return torch.matmul(left, right, out=out)
    # oneDNN copies a first matrix that is not stored row by row, so the smaller one comes first
    if left.is_contiguous() or left.numel() <= right.numel():
        found = _linear(left, right.mT, None, "none", [], "")
    else:
        found = _linear(right.mT, left, None, "none", [], "").mT
    return found if out is None else out.copy_(found)


def is_quick(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN is the faster way to multiply [N, K] with [K, M]."""
    return (
        AHEAD
        and left.ndim == right.ndim == 2
        and left.dtype is torch.float32
        and left.is_cpu
        and left.shape[0] >= ROWS
        and left.shape[0] * right.shape[0] * right.shape[1] >= WORTH
    )


_linear: Callable[..., Tensor] = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", torch.addmm)
"""x [N, I], weight [O, I], bias [O] or None, and "none", [], "" -> [N, O] by oneDNN. torch.compile uses it for dense
layers on CPUs."""


AHEAD = has_onednn() and is_ahead_of_mkl()


def _torch_relu_vjp() -> Callable[[Array, Array], Array]:
    """Return the operation that autograd calls, which needs one pass over memory, if this version of torch has it."""
    fused = getattr(torch.ops.aten, "threshold_backward", None)
    return relu_vjp if fused is None else partial(fused.default, threshold=0)


def _tanh(z: Tensor) -> Tensor:
    """tanh of `z` [..], in place. On a CPU, numpy takes a tenth of torch's time; errors stay below 6e-8."""
    if not z.is_cpu or z.dtype is not torch.float32:
        return z.tanh_()
    array = z.numpy()
    np.tanh(array, out=array)
    return z


def _same(values: Array) -> Array:
    return values


TORCH = Backend(
    "torch",
    array=_same,
    tensor=_same,
    affine=affine,
    product=product,
    stack=lambda arrays: torch.stack(list(arrays)),
    join=lambda arrays: torch.cat(list(arrays), -2),
    sum_rows=partial(torch.sum, dim=-2, keepdim=True),
    activations={
        nn.Identity: None,
        nn.ReLU: Activation(torch.relu_, _torch_relu_vjp()),
        nn.Tanh: Activation(_tanh, getattr(torch.ops.aten, "tanh_backward", tanh_vjp)),
    },
)
COMPILED = replace(TORCH, name="compiled")
"""Arrays are tensors. `rlsdk_kernels.compiled_dense` evaluates networks."""
BACKENDS = {backend.name: backend for backend in (NUMPY, TORCH, COMPILED)}


def _by_name(name: str) -> Backend:
    return BACKENDS[name]


copyreg.pickle(Backend, lambda backend: (_by_name, (backend.name,)))
