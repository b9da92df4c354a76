"""The few operations a dense network needs, in numpy and in torch.

torch multiplies float32 matrices by MKL, which gives processors of AMD its AVX2 kernels even where they have AVX-512. oneDNN,
by which torch convolves, looks at what the processor can do instead: measured there it multiplies 256 x 256 matrices at 215
GFLOP/s, MKL at 103 and numpy at 116, with the same rounding. The choice depends on the processor and on sizes alone, so that
seeds repeat to the bit.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.kernels.memory import LARGE, empty_rows

Array = Any
"""A numpy array or a tensor, as the backend has it."""

WORTH = 1_500_000
"""From so many multiplications on oneDNN is ahead, 1.2 to 2.1 times as fast; a call of it costs 10 us more."""
NARROW = 64
"""Up to this inner size, large results are multiplied by MKL into memory that is used again: [8192, 4] times [4, 64] takes 0.1 ms
so, 1.2 ms by oneDNN."""
ROWS = 8
"""For fewer rows it would rather copy the other matrix than multiply."""
SUMMED = 64
"""With `out=`, multiply then copy; pays off from an inner size of 64."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function applied in place, and the gradient with respect to its input."""

    apply: Callable[[Array], Array]
    vjp: Callable[[Array, Array], Array]
    """Given the gradient with respect to the output, and the output."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Operations on the arrays of one library."""

    name: str
    array: Callable[[Tensor], Array]
    tensor: Callable[[Array], Tensor]
    affine: Callable[[Array, Array, Array], Array]
    """x [.., N, I], matrix [.., I, O], bias [.., 1, O] -> a new array [.., N, O]."""
    product: Callable[..., Array]
    sum_rows: Callable[..., Array]
    """Of [.., N, O] into `out` [.., 1, O]."""
    stack: Callable[[Sequence[Array]], Array]
    join: Callable[[Sequence[Array]], Array]
    """Of [.., N, O]: rows one after another."""
    activations: dict[type[nn.Module], Activation | None]
    """None: nothing follows."""

    def __deepcopy__(self, memo: object) -> Backend:
        """There is one of each; kernels compare them by identity."""
        return self

    def __reduce__(self) -> tuple[Callable[[str], Backend], tuple[str]]:
        return _by_name, (self.name,)


def _by_name(name: str) -> Backend:
    return BACKENDS[name]


def _numpy_product(left: Array, right: Array, out: Array | None = None) -> Array:
    plain = left.ndim == right.ndim == 2 and (out is None or out.flags.c_contiguous)
    return (np.dot if plain else np.matmul)(left, right, out=out)


@lru_cache(64)
def _ones(rows: int, kind: Any) -> Array:
    return np.ones((1, rows), kind)


def _numpy_sum_rows(values: Array, out: Array) -> Array:
    # a third of the time of `add.reduce`
    return (np.dot if values.ndim == 2 else np.matmul)(_ones(values.shape[-2], values.dtype), values, out=out)


def _numpy_affine(x: Array, matrix: Array, bias: Array) -> Array:
    result = x.dot(matrix) if matrix.ndim == 2 else np.matmul(x, matrix)  # `dot` takes two thirds of the time of a call
    result += bias
    return result


def affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """x [N, I] or [C, N, I] times matrix [I, O] or [C, I, O] plus bias [1, O] or [C, 1, O] -> [N, O] or [C, N, O], on the
    processor."""
    if matrix.ndim == 3:
        return torch.baddbmm(bias, x.expand(matrix.shape[0], -1, -1), matrix)
    rows = x.shape[0]
    if AHEAD and rows >= ROWS and _is_worth(x, matrix) and x.dtype is torch.float32:
        return _linear(x, matrix.mT, bias[0], "none", [], "")
    return torch.addmm(bias, x, matrix, out=empty_rows(rows, matrix.shape[1], x))


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """[N, K] or [C, N, K] times [K, M] or [C, K, M] -> [N, M] or [C, N, M], on the processor."""
    may = AHEAD and left.ndim == 2 and left.shape[0] >= ROWS and left.dtype is torch.float32
    if not may or not _is_worth(left, right) or (out is not None and left.shape[-1] < SUMMED):
        if out is None and left.ndim == 2:
            out = empty_rows(left.shape[0], right.shape[1], left)
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
        and _is_worth(left, right)
    )


def _is_worth(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN multiplies [N, K] with [K, M] faster than MKL.

    It always makes a new result. Where rows are many and short, the pages of that cost more than it gains.
    """
    rows, inner = left.shape
    if rows * right.shape[1] >= LARGE and inner <= NARROW:
        return False
    return rows * right.numel() >= WORTH


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


def _relu_vjp(grad: Array, y: Array) -> Array:
    return grad * (y > 0.0)


def _tanh_vjp(grad: Array, y: Array) -> Array:
    return grad * (1.0 - y * y)


def _in_one_pass(name: str, vjp: Callable[[Array, Array], Array], *settings: float) -> Callable[[Array, Array], Array]:
    """What autograd calls for an activation, where this torch has it; large results in memory that is used again. `vjp`: the
    same in several operations; `settings`: of the operation."""
    operation = getattr(torch.ops.aten, name, None)
    if operation is None:
        return vjp

    def fused(grad: Tensor, y: Tensor) -> Tensor:
        out = empty_rows(grad.shape[0], grad.shape[1], grad) if grad.ndim == 2 else None
        found: Tensor = (
            operation.default(grad, y, *settings)
            if out is None
            else operation.grad_input(grad, y, *settings, grad_input=out)
        )
        return found

    return fused


def _tanh(z: Tensor) -> Tensor:
    """tanh of `z` [..], in place: numpy's takes a tenth of the time of torch's on a CPU; errors stay below 6e-8."""
    if not z.is_cpu or z.dtype is not torch.float32:
        return z.tanh_()
    array = z.numpy()
    np.tanh(array, out=array)
    return z


def _same(values: Array) -> Array:
    return values


NUMPY = Backend(
    "numpy",
    array=lambda tensor: tensor.numpy(),
    tensor=torch.from_numpy,
    affine=_numpy_affine,
    product=_numpy_product,
    stack=np.stack,
    join=partial(np.concatenate, axis=-2),
    sum_rows=_numpy_sum_rows,
    activations={
        nn.Identity: None,
        nn.ReLU: Activation(lambda z: np.maximum(z, 0.0, out=z), _relu_vjp),
        nn.Tanh: Activation(lambda z: np.tanh(z, z), _tanh_vjp),
    },
)
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
        nn.ReLU: Activation(torch.relu_, _in_one_pass("threshold_backward", _relu_vjp, 0)),
        nn.Tanh: Activation(_tanh, _in_one_pass("tanh_backward", _tanh_vjp)),
    },
)
BACKENDS = {backend.name: backend for backend in (NUMPY, TORCH)}
