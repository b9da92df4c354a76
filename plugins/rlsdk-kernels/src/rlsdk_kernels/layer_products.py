"""Calls modules one after another, with the fastest matrix product for each linear layer. The result is differentiable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.kernels import is_hooked, is_transformed
from rlsdk_kernels import backends
from rlsdk_kernels.backends import is_quick, product

LARGE = 2**18
"""Weights with at least this number of entries do not stay in a cache between two steps."""


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """[N, I] -> [N, O], the same as calling one module after another."""
    by_torch = is_transformed() or x.dim() != 2
    for module in modules:
        if by_torch or is_hooked(module):
            x = module(x)
        elif type(module) is nn.Sequential:
            x = sequential(module, x)
        else:
            plain = type(module) is nn.Linear and module.bias is not None
            x = _linear_layer(x, cast("nn.Linear", module)) if plain else module(x)
    return x


def _linear_layer(x: Tensor, layer: nn.Linear) -> Tensor:
    """[N, I] -> [N, O]."""
    weight = layer.weight
    if is_quick(x, weight.mT):
        found: Tensor = _Product.apply(x, weight.mT)  # type: ignore[no-untyped-call]
        return found + layer.bias
    if _is_acting(x, weight):
        return torch.from_numpy(np.matmul(x.detach().numpy(), weight.detach().numpy().T)) + layer.bias
    return torch.nn.functional.linear(x, weight, layer.bias)


def _is_acting(x: Tensor, weight: Tensor) -> bool:
    """Whether there are few rows [N, I], a large weight [O, I] and no graph.

    Then numpy needs two thirds of the time, because it reads uncached weights faster.
    """
    few = x.is_cpu and x.shape[0] <= backends.ROWS and x.dtype is torch.float32 and not torch.is_grad_enabled()
    return few and weight.numel() >= LARGE


class _Product(torch.autograd.Function):
    """The matrix product of [N, K] and [K, M], differentiable any number of times."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return product(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        left, right = ctx.saved_tensors
        to_left, to_right = ctx.needs_input_grad
        return (
            _Product.apply(grad, right.mT) if to_left else None,  # type: ignore[no-untyped-call]
            _Product.apply(left.mT, grad) if to_right else None,  # type: ignore[no-untyped-call]
        )
