"""The few operations a dense network needs, in numpy and in torch, and the rule that chooses between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.engines import products

Array = Any
"""A numpy array or a tensor, as the library has it."""

NUMPY_WIDTH, NUMPY_ROWS = 128, 128
"""Up to this width and batch numpy is faster: its calls cost a third of torch's, and the arithmetic is small."""
NUMPY_ACTING_ROWS = 32
"""Up to so many rows numpy acts faster, whatever the width."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function applied in place, and the slope of its input from the slope and value of its output."""

    apply: Callable[[Array], Array]
    pull: Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class Library:
    """Operations on the arrays of one library."""

    name: str
    array: Callable[[Tensor], Array]
    tensor: Callable[[Array], Tensor]
    affine: Callable[[Array, Array, Array], Array]
    """x [.., N, I], matrix [.., I, O], bias [.., 1, O] -> a new array [.., N, O]."""
    product: Callable[..., Array]
    total: Callable[..., Array]
    stacked: Callable[[Sequence[Array]], Array]
    activations: dict[type[nn.Module], Activation]

    def __deepcopy__(self, memo: dict[int, Any]) -> Library:
        """There is one of each; kernels ask which by identity."""
        return self

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _by_name, (self.name,)


def _by_name(name: str) -> Library:
    return LIBRARIES[name]


def _numpy_affine(x: Array, matrix: Array, bias: Array) -> Array:
    result = x.dot(matrix) if matrix.ndim == 2 else np.matmul(x, matrix)  # `dot` takes two thirds of the time of a call
    result += bias
    return result


def _tanh(z: Tensor) -> Tensor:
    """numpy's takes a tenth of the time of torch's on processors, and errs by as little (6e-8)."""
    if not z.is_cpu or z.dtype is not torch.float32:
        return z.tanh_()
    array = z.numpy()
    np.tanh(array, out=array)
    return z


def _same(values: Array) -> Array:
    return values


NUMPY = Library(
    "numpy",
    array=lambda tensor: tensor.numpy(),
    tensor=torch.from_numpy,
    affine=_numpy_affine,
    product=np.matmul,
    stacked=np.stack,
    total=lambda slope, out: np.add.reduce(slope, axis=-2, out=out, keepdims=True),
    activations={
        nn.Identity: Activation(_same, lambda slope, _: slope),
        nn.ReLU: Activation(lambda z: np.maximum(z, 0.0, out=z), lambda slope, y: slope * (y > 0.0)),
        nn.Tanh: Activation(lambda z: np.tanh(z, out=z), lambda slope, y: slope * (1.0 - y * y)),
    },
)
TORCH = Library(
    "torch",
    array=_same,
    tensor=_same,
    affine=products.affine,
    product=products.product,
    stacked=lambda arrays: torch.stack(list(arrays)),
    total=lambda slope, out: torch.sum(slope, -2, keepdim=True, out=out),
    activations={
        nn.Identity: Activation(_same, lambda slope, _: slope),
        nn.ReLU: Activation(torch.relu_, lambda slope, y: torch.ops.aten.threshold_backward(slope, y, 0)),
        nn.Tanh: Activation(_tanh, torch.ops.aten.tanh_backward),
    },
)
LIBRARIES = {library.name: library for library in (NUMPY, TORCH)}


def choose(choice: str, *, width: int, rows: int, device: str) -> Library | None:
    """What runs dense layers of this largest `width` fastest on batches of so many `rows`; None is autograd.

    `choice` is one of "auto", "autograd", "numpy", "torch".
    """
    if choice == "autograd" or device != "cpu":
        return None
    if choice != "auto":
        return LIBRARIES[choice]
    return NUMPY if width <= NUMPY_WIDTH and rows <= NUMPY_ROWS else TORCH
