"""Ensembles of perceptrons. The weights of all members are stacked, with one batched matrix product per layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlsdk.kernels.protocol import is_dense
from rlsdk.networks.mlp import activation


class EnsembleLinear(nn.Module):
    """`members` linear layers in parallel: [C, N, inputs] -> [C, N, outputs]; each initialised like `nn.Linear`."""

    is_ensemble_linear = True  # `rlsdk.kernels` recognises the layer by it

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """[C, N, inputs] -> [C, N, outputs]."""
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleMLP(nn.Module):
    """`members` perceptrons with the same shape and different weights: [N, inputs] -> [C, N, outputs]."""

    def __init__(
        self,
        members: int,
        inputs: int,
        widths: Sequence[int],
        outputs: int,
        activation_fn: str | Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [EnsembleLinear(members, inputs, width), activation(activation_fn)]
            inputs = width
        self.layers = nn.Sequential(*layers, EnsembleLinear(members, inputs, outputs))
        self.members = members

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x.unsqueeze(0).expand(self.members, -1, -1))
        return result

    def first(self, x: Tensor) -> Tensor:
        """Evaluate only the first member, [N, inputs] -> [N, outputs]."""
        if not is_dense(list(self.layers)):
            first: Tensor = self(x)[0]
            return first
        for layer in self.layers:
            x = torch.addmm(layer.bias[0], x, layer.weight[0]) if isinstance(layer, EnsembleLinear) else layer(x)
        return x
