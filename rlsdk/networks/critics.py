"""Ensembles of critics evaluated together: the members' weights are stacked, one batched product per layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlsdk.engines import Fitted, Library, Stack, stack_of
from rlsdk.networks.flat import backward
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

    def __init__(self, encoder: nn.Module, ensemble: EnsembleMLP, library: Library | None = None) -> None:
        """`library`: what runs dense layers by hand; None = autograd."""
        super().__init__()
        self.encoder, self.ensemble = encoder, ensemble
        self._library = library
        self._stack = Fitted(self._fit, self)

    def _fit(self, hooked: bool) -> Stack | None:
        return None if hooked else stack_of(list(self.ensemble.layers), self.encoder, self._library)

    def evaluated(self, features: Tensor, unit_action: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(values [C, N, outputs] without graph, what brings the gradient of a loss with respect to them into the parameters'
        `grad`, which is taken to be zero)."""
        stack = self._stack()
        if stack is None:
            values = self(features, unit_action)
            return values.detach(), lambda slope: backward(values, slope)
        with torch.no_grad():
            return stack.evaluated(torch.cat([features, unit_action], dim=-1))

    def action_gradient(self, features: Tensor, unit_action: Tensor) -> tuple[Tensor, Tensor]:
        """Mean value of all critics and outputs over the batch (0-d), and its gradient with respect to the action [N, A].

        The critics' own gradients, which autograd would compute only to be thrown away, are never formed.
        """
        stack = self._stack()
        if stack is None:
            leaf = unit_action.detach().requires_grad_()
            values = self(features, leaf)
            (gradient,) = torch.autograd.grad(values, leaf, torch.full_like(values, 1.0 / values.numel()))
            return values.detach().mean(), gradient
        array, tensor = stack.library.array, stack.library.tensor
        with torch.no_grad():
            found, trace = stack.forward(array(torch.cat([features, unit_action], dim=-1)))
            values = tensor(found)
            slope = tensor(stack.input_slope(trace, array(torch.full_like(values, 1.0 / values.numel()))))
            return values.mean(), slope.sum(0)[:, features.shape[-1] :]

    def forward(self, features: Tensor, unit_action: Tensor) -> Tensor:
        result: Tensor = self.ensemble(torch.cat([features, unit_action], dim=-1))
        return result
