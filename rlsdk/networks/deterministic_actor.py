"""The deterministic actor of TD3 and DDPG. Source: Fujimoto et al. 2018, arXiv:1802.09477."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Generator, Tensor, nn

from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import AUTOGRAD, Acting, Acts, DenseNetwork
from rlsdk.kernels.reference import Autograd
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.documented_methods import explains_documented_methods
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.mlp import mlp
from rlsdk.networks.modes import has_train_mode
from rlsdk.records import Act, Observation


@explains_documented_methods
class DeterministicActor(nn.Module):
    """A policy: encoder -> hidden layers -> tanh, which gives unit actions [N, A].

    It does not explore; `rlsdk.exploration.noisy_behavior` adds noise to its actions.
    """

    _also_called = ("actor",)

    def __init__(
        self,
        encoder: nn.Module,
        hidden: Sequence[int],
        activation_fn: str | Callable[[], nn.Module],
        scale: ActionScale,
        choice: KernelChoice = AUTOGRAD,
    ) -> None:
        """`choice` selects the kernel that evaluates the dense layers."""
        super().__init__()
        inputs = features_dim(encoder)
        self.encoder, self.scale = encoder, scale
        self.body = mlp(inputs, hidden, activation_fn)
        self.mean: nn.Module = nn.Linear(hidden[-1] if hidden else inputs, scale.size)
        self.has_train_mode = has_train_mode(encoder, self.body)
        self._choice = choice
        self._kernels = KernelSlot(self._make_kernels, self)

    def _make_kernels(self, hooked: bool) -> tuple[Acts, DenseNetwork]:
        """Build the kernels for acting and for learning."""
        self.has_train_mode = has_train_mode(self.encoder, self.body)
        layers, choice = [*self.body, self.mean, nn.Tanh()], self._choice
        acting = factory.dense_acting(layers, self.encoder, choice, hooked, self.unit_action)
        acts = factory.graphed_acting(partial(self._act, acting), self, choice.setting, hooked or self.has_train_mode)
        return acts, factory.dense_network(layers, self.encoder, choice, hooked, Autograd(self.unit_action))

    def unit_action(self, features: Tensor) -> Tensor:
        """Unit actions [N, A] for encoded features [N, F]."""
        return self.mean(self.body(features)).tanh()  # type: ignore[no-any-return]

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """The squared error [N] of unit actions; see `rlsdk.interfaces.Imitates`."""
        error = self.unit_action(self.encoder(observation.features)) - self.scale.to_unit(action)
        return error.square().mean(-1)

    def evaluate(self, features: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (unit actions [N, A] without graph, vjp) for encoded features [N, F].

        `vjp(grad)` takes the gradient of a loss with respect to the actions. It writes the gradient with respect to the
        parameters into their `grad`, which it assumes to be zero.
        """
        return self._kernels()[1].evaluate(features)

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        """Return actions [B, ..] in environment units. `deterministic` makes no difference."""
        acts, _ = self._kernels()
        if self.has_train_mode:
            self.eval()
        return acts(observation, carry, deterministic, generator)

    @torch.no_grad()
    def _act(
        self, acting: Acting, observation: Observation, carry: tuple[()], deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        return Act(self.scale.to_environment(acting(self.encoder(observation.features))), carry, ())


def smoothed(unit_action: Tensor, noise: Tensor, *, std: float, clip: float) -> Tensor:
    """clip(a + clip(std * noise, -clip, clip), -1, 1): target policy smoothing, equation 14.

    Args:
        unit_action: actions of the target actor, float [N, A].
        noise: standard normal numbers, float [N, A].
        std: standard deviation of the noise; DDPG has 0, with `clip` 0.
        clip: largest absolute value of the noise.
    """
    return (unit_action + (std * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)
