"""Layers that torch differentiates: products of linear layers, and convolutions of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from rlsdk.kernels import is_hooked, is_transformed
from rlsdk_kernels import backends
from rlsdk_kernels.backends import is_quick, product

# Calls modules one after another, with the fastest matrix product for each linear layer. The result is differentiable.

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


# Convolutions and ReLU on images, on the CPU.


def is_convolutional(modules: Sequence[nn.Module]) -> bool:
    """Whether modules are convolutions without padding, each followed by ReLU, with `nn.Flatten()` at the end."""
    *layers, last = modules
    pairs = list(zip(layers[::2], layers[1::2], strict=False))
    if type(last) is not nn.Flatten or (last.start_dim, last.end_dim) != (1, -1) or len(layers) % 2 or not layers:
        return False
    return all(_is_plain(convolution) and type(activation) is nn.ReLU for convolution, activation in pairs)


def _is_plain(module: nn.Module) -> bool:
    return (
        type(module) is nn.Conv2d
        and isinstance(getattr(module, "weight", None), nn.Parameter)
        and (module.padding, module.dilation, module.groups) == ((0, 0), (1, 1), 1)
    )


class ConvolutionKernel:
    """Evaluates convolutions with channels last in memory, which takes a quarter less time.

    `scale` is applied to the weights of the first layer, not to the pixels, of which there are many more.
    """

    def __init__(self, modules: Sequence[nn.Module], scale: float, reference: Callable[[Tensor], Tensor]) -> None:
        """`reference` computes [N, channels, height, width] -> [N, features] on accelerators."""
        self.layers = [module for module in modules if isinstance(module, nn.Conv2d)]
        self.scale, self.reference = scale, reference

    def __call__(self, pixels: Tensor) -> Tensor:
        """[N, channels, height, width] -> [N, features]. If autograd is on, the result has a graph."""
        if not pixels.is_cpu:
            return self.reference(pixels)
        values, scale = pixels.to(torch.float32, memory_format=torch.channels_last), self.scale
        for layer in self.layers:
            weight = (layer.weight * scale).contiguous(memory_format=torch.channels_last)
            values, scale = conv2d(values, weight, layer.bias, layer.stride).relu_(), 1.0
        return values.flatten(1)
