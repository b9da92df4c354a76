"""Ensembles of critics evaluated together: the members' weights are stacked, one batched product per layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlsdk.kernels import AUTOGRAD, Autograd, KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import DenseNetwork
from rlsdk.networks.mlp import activation

ValueOf = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of the critics' outputs [C, N, outputs]: (one number to climb, 0-d; its gradient with respect to them)."""


def mean_value(values: Tensor) -> tuple[Tensor, Tensor]:
    """(mean over critics, rows and outputs, 0-d; its gradient), for values float [C, N, K]."""
    return values.mean(), torch.full_like(values, 1.0 / values.numel())


class EnsembleLinear(nn.Module):
    """`members` linear layers side by side: [C, N, inputs] -> [C, N, outputs]; each initialised as `nn.Linear`."""

    is_ensemble_linear = True  # `rlsdk.kernels` looks for it

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


class ContinuousCritics(nn.Module):
    """C critics of (observation features, unit action): [N, F], [N, A] -> [C, N, outputs].

    `outputs` is 1 for a value, the number of quantiles for a distributional critic. The encoder is passed in and may be
    the actor's own.
    """

    def __init__(self, encoder: nn.Module, ensemble: EnsembleMLP, choice: KernelChoice = AUTOGRAD) -> None:
        """`choice`: of what evaluates them."""
        super().__init__()
        self.encoder, self.ensemble = encoder, ensemble
        self._choice = choice
        self._kernel = KernelSlot(self._make_kernel, self)

    def _make_kernel(self, hooked: bool) -> DenseNetwork:
        layers, reference = list(self.ensemble.layers), Autograd(self.ensemble)
        return factory.dense_network(layers, self.encoder, self._choice, hooked, reference)

    def evaluate(self, features: Tensor, unit_action: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(values [C, N, outputs] without graph, vjp: writes the gradient of a loss, given that with respect to them, into the
        parameters' `grad`, which is taken to be zero), for features [N, F] and actions [N, A]."""
        return self._kernel().evaluate(torch.cat([features, unit_action], dim=-1))

    def action_gradient(
        self, features: Tensor, unit_action: Tensor, value_of: ValueOf = mean_value
    ) -> tuple[Tensor, Tensor]:
        """(`value_of` the critics' outputs, 0-d; its gradient with respect to the action [N, A]).

        The critics' own gradients, which autograd would compute only to be thrown away, are never formed.
        """
        values, vjp = self._kernel().evaluate_inputs(torch.cat([features, unit_action], dim=-1))
        value, grad = value_of(values)
        return value, vjp(grad)[:, features.shape[-1] :]

    def forward(self, features: Tensor, unit_action: Tensor) -> Tensor:
        result: Tensor = self.ensemble(torch.cat([features, unit_action], dim=-1))
        return result
