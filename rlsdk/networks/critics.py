"""An ensemble of critics of continuous actions, evaluated together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import AUTOGRAD, DenseNetwork
from rlsdk.kernels.reference import Autograd
from rlsdk.networks.documented_methods import explains_attributes
from rlsdk.networks.ensemble import EnsembleMLP

ValueOf = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function: outputs of the critics [C, N, outputs] -> (the value to maximise, 0-d; its gradient with respect to them)."""


def mean_value(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return (mean over critics, rows and outputs, 0-d; its gradient), for values float [C, N, K]."""
    return values.mean(), torch.full_like(values, 1.0 / values.numel())


@explains_attributes
class ContinuousCritics(nn.Module):
    """C critics of (observation features, unit action): [N, F], [N, A] -> [C, N, outputs].

    `outputs` is 1 for a value, and the number of quantiles for a distributional critic. The encoder may be shared with
    the actor.
    """

    def __init__(self, encoder: nn.Module, ensemble: EnsembleMLP, choice: KernelChoice = AUTOGRAD) -> None:
        """`choice` selects the kernel that evaluates the critics."""
        super().__init__()
        self.encoder, self.ensemble = encoder, ensemble
        self._choice = choice
        self._kernels = KernelSlot(self._make_kernels, self)

    def _make_kernels(self, hooked: bool) -> tuple[DenseNetwork, DenseNetwork]:
        """Build the kernels of all critics and of the first critic alone."""
        layers, reference = list(self.ensemble.layers), Autograd(self.ensemble)
        alone = Autograd((lambda inputs: self.ensemble(inputs)[0]) if hooked else self.ensemble.first)
        every = factory.dense_network(layers, self.encoder, self._choice, hooked, reference)
        return every, factory.dense_network(layers, self.encoder, self._choice, hooked, alone, 0)

    def evaluate(self, features: Tensor, unit_action: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [C, N, outputs] without graph, vjp) for features [N, F] and actions [N, A].

        `vjp(grad)` takes the gradient of a loss with respect to the values. It writes the gradient with respect to the
        parameters into their `grad`, which it assumes to be zero.
        """
        return self._kernels()[0].evaluate(torch.cat([features, unit_action], dim=-1))

    def action_gradient(
        self, features: Tensor, unit_action: Tensor, value_of: ValueOf = mean_value
    ) -> tuple[Tensor, Tensor]:
        """Return (`value_of` the critics' outputs, 0-d; its gradient with respect to the action [N, A]).

        The gradients of the critics' parameters are not computed, as autograd would do.
        """
        values, vjp = self._kernels()[0].evaluate_inputs(torch.cat([features, unit_action], dim=-1))
        value, grad = value_of(values)
        return value, vjp(grad)[:, features.shape[-1] :]

    def first_action_gradient(
        self, features: Tensor, unit_action: Tensor, value_of: ValueOf = mean_value
    ) -> tuple[Tensor, Tensor]:
        """Return (`value_of` the first critic's outputs, 0-d; its gradient with respect to the action [N, A]).

        The other critics are not evaluated.
        """
        values, vjp = self._kernels()[1].evaluate_inputs(torch.cat([features, unit_action], dim=-1))
        value, grad = value_of(values)
        return value, vjp(grad)[:, features.shape[-1] :]

    def forward(self, features: Tensor, unit_action: Tensor) -> Tensor:
        result: Tensor = self.ensemble(torch.cat([features, unit_action], dim=-1))
        return result
