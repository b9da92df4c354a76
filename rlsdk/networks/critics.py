"""Ensembles of critics evaluated together: the members' weights are stacked, one batched product per layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlsdk.networks.mlp import activation


class EnsembleLinear(nn.Module):
    """`members` linear layers side by side: [C, N, inputs] -> [C, N, outputs]; each initialised as `nn.Linear`."""

    is_ensemble_linear = True  # how `rlsdk.engines` knows it

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
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


class ContinuousCritics(nn.Module):
    """C critics of (observation features, unit action): [N, F], [N, A] -> [C, N, outputs].

    `outputs` is 1 for a value, the number of quantiles for a distributional critic. The encoder is passed in and may be
    the actor's own.
    """

    def __init__(self, encoder: nn.Module, ensemble: EnsembleMLP) -> None:
        super().__init__()
        self.encoder, self.ensemble = encoder, ensemble

    def forward(self, features: Tensor, unit_action: Tensor) -> Tensor:
        result: Tensor = self.ensemble(torch.cat([features, unit_action], dim=-1))
        return result
