"""The operations that a dense network needs, and their implementation in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Array = Any
"""A numpy array or a tensor, depending on the backend."""


MANY = 4096
Vjp = Callable[[Array, Array], Array]
"""A function: (gradient with respect to an activation's output, that output) -> gradient with respect to its input."""


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation function, applied in place, and the gradient with respect to its input."""

    apply: Callable[[Array], Array]
    vjp: Vjp


@dataclass(frozen=True, slots=True)
class Backend:
    """The operations on the arrays of one library."""

    name: str
    array: Callable[[Tensor], Array]
    tensor: Callable[[Array], Tensor]
    affine: Callable[[Array, Array, Array], Array]
    """x [.., N, I], matrix [.., I, O], bias [.., 1, O] -> a new array [.., N, O]."""
    product: Callable[..., Array]
    sum_rows: Callable[..., Array]
    """Sums [.., N, O] over N into `out` [.., 1, O]."""
    stack: Callable[[Sequence[Array]], Array]
    join: Callable[[Sequence[Array]], Array]
    """Concatenates the rows of several arrays [.., N, O]."""
    activations: dict[type[nn.Module], Activation | None]
    """Class of an activation -> its functions; None: no operation."""

    def __deepcopy__(self, memo: object) -> Backend:
        """Return the object itself: there is one object per backend, and kernels compare them by identity."""
        return self


def _numpy_product(left: Array, right: Array, out: Array | None = None) -> Array:
    plain = left.ndim == right.ndim == 2 and (out is None or out.flags.c_contiguous)
    return (np.dot if plain else np.matmul)(left, right, out=out)


@lru_cache(64)
def _ones(rows: int, kind: object) -> Array:
    return np.ones((1, rows), kind)


def _numpy_sum_rows(values: Array, out: Array) -> Array:
    # takes a third of the time of `add.reduce`
    return (np.dot if values.ndim == 2 else np.matmul)(_ones(values.shape[-2], values.dtype), values, out=out)


def _numpy_affine(x: Array, matrix: Array, bias: Array) -> Array:
    result = x.dot(matrix) if matrix.ndim == 2 else np.matmul(x, matrix)  # `dot` takes two thirds of the time of a call
    result += bias
    return result


def _relu(z: Array) -> Array:
    """max(z, 0) of [..], in place. From some thousand numbers on, torch takes a fifth of numpy's time."""
    return np.maximum(z, 0.0, out=z) if z.size < MANY else torch.relu_(torch.from_numpy(z)).numpy()


def relu_vjp(grad: Array, y: Array) -> Array:
    """The gradient with respect to z of y = max(z, 0)."""
    return grad * (y > 0.0)


def tanh_vjp(grad: Array, y: Array) -> Array:
    """The gradient with respect to z of y = tanh(z)."""
    return grad * (1.0 - y * y)


NUMPY = Backend(
    "numpy",
    array=Tensor.numpy,
    tensor=torch.from_numpy,
    affine=_numpy_affine,
    product=_numpy_product,
    stack=np.stack,
    join=partial(np.concatenate, axis=-2),
    sum_rows=_numpy_sum_rows,
    activations={
        nn.Identity: None,
        nn.ReLU: Activation(_relu, relu_vjp),
        nn.Tanh: Activation(lambda z: np.tanh(z, z), tanh_vjp),
    },
)
