"""The operations of a dense network in torch.

torch multiplies float32 matrices by MKL, which gives processors of AMD its AVX2 kernels even where they have AVX-512. oneDNN,
by which torch convolves, looks at what the processor can do instead: measured there it multiplies 256 x 256 matrices at 215
GFLOP/s, MKL at 103 and numpy at 116, with the same rounding. The choice depends on the processor and on sizes alone, so that
seeds repeat to the bit.
"""

from __future__ import annotations

import copyreg
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.kernels.large_backend import large_backend
from rlsdk.kernels.numpy_backend import NUMPY, Activation, Array, Backend, relu_vjp, tanh_vjp

WORTH = 1_500_000
"""From so many multiplications on oneDNN is ahead, 1.2 to 2.1 times as fast; a call of it costs 10 us more."""
ROWS = 8
"""For fewer rows it would rather copy the other matrix than multiply."""
SUMMED = 64
"""With `out=`, multiply then copy; pays off from an inner size of 64."""


def affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """x [N, I] or [C, N, I] times matrix [I, O] or [C, I, O] plus bias [1, O] or [C, 1, O] -> [N, O] or [C, N, O], on the
    processor."""
    if matrix.ndim == 3:
        return torch.baddbmm(bias, x.expand(matrix.shape[0], -1, -1), matrix)
    if AHEAD and (rows := x.shape[0]) >= ROWS and rows * matrix.numel() >= WORTH and x.dtype is torch.float32:
        return _linear(x, matrix.mT, bias[0], "none", [], "")
    return torch.addmm(bias, x, matrix)


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """[N, K] or [C, N, K] times [K, M] or [C, K, M] -> [N, M] or [C, N, M], on the processor."""
    may = AHEAD and left.ndim == 2 and left.shape[0] >= ROWS and left.dtype is torch.float32
    if not may or left.shape[0] * right.numel() < WORTH or (out is not None and left.shape[-1] < SUMMED):
        return torch.matmul(left, right, out=out)
    # oneDNN copies a first matrix that does not lie row by row: the smaller one, then
    if left.is_contiguous() or left.numel() <= right.numel():
        found = _linear(left, right.mT, None, "none", [], "")
    else:
        found = _linear(right.mT, left, None, "none", [], "").mT
    return found if out is None else out.copy_(found)


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


def has_onednn() -> bool:
    """Whether this build of torch carries it."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


_linear: Callable[..., Tensor] = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", torch.addmm)
"""x [N, I], weight [O, I], bias [O] or None, and "none", [], "" -> [N, O] by oneDNN: what torch.compile calls where it has
dense layers on processors."""


def _ahead() -> bool:
    """Whether MKL does not use this processor's AVX-512, and this torch has oneDNN."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not has_onednn():
        return False
    info = Path("/proc/cpuinfo")  # `platform.processor` is empty on Linux
    return "AuthenticAMD" in (info.read_text(encoding="utf-8") if info.exists() else platform.processor())


AHEAD = _ahead()


def _torch_relu_vjp() -> Callable[[Array, Array], Array]:
    """What autograd calls, in one pass, where this torch has it."""
    fused = getattr(torch.ops.aten, "threshold_backward", None)
    return relu_vjp if fused is None else partial(fused.default, threshold=0)


def _tanh(z: Tensor) -> Tensor:
    """tanh of `z` [..], in place: numpy's takes a tenth of the time of torch's on a CPU; errors stay below 6e-8."""
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
LARGE = large_backend(TORCH)
BACKENDS = {backend.name: backend for backend in (NUMPY, TORCH, LARGE)}


def _by_name(name: str) -> Backend:
    return BACKENDS[name]


copyreg.pickle(Backend, lambda backend: (_by_name, (backend.name,)))
