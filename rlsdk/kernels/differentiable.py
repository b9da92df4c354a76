"""Layers that are differentiated as torch's modules are, by calling these modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlsdk.kernels.reference import backward


class Differentiable:
    """Evaluates a function [N, I] -> [N, O] that depends on a network's parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the outputs for inputs [N, I]. If autograd is on, they have a graph."""
        return self.function(inputs)

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `rlsdk.networks.Layers.evaluate`; inputs [N, I]."""
        leaf = inputs.detach().requires_grad_(inputs.requires_grad)
        with torch.enable_grad():
            outputs = self.function(leaf)

        def vjp(grad: Tensor) -> Tensor | None:
            backward((outputs,), (grad,))
            return leaf.grad

        return outputs.detach(), vjp
