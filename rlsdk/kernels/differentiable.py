"""Layers that are differentiated as torch's modules are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from rlsdk.kernels.reference import backward


class Differentiable(Protocol):
    """Layers, [N, I] -> [N, O]."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Return the outputs for inputs [N, I]. If autograd is on, they have a graph."""

    def evaluate(self, x: Tensor, /) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `rlsdk.networks.Layers.evaluate`; inputs [N, I]."""


class ByModules:
    """Calls the modules of layers; see `Differentiable`."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def __call__(self, x: Tensor) -> Tensor:
        """See `Differentiable`; inputs [N, I]."""
        return self.function(x)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `Differentiable`; inputs [N, I]."""
        leaf = x.detach().requires_grad_(x.requires_grad)
        with torch.enable_grad():
            outputs = self.function(leaf)

        def vjp(grad: Tensor) -> Tensor | None:
            backward((outputs,), (grad,))
            return leaf.grad

        return outputs.detach(), vjp
