"""The actor of the soft actor-critic family: a squashed Gaussian policy, with independent or state-dependent noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import SquashedGaussian
from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import AUTOGRAD, Acts, SampledVjp, SquashedLayers, SquashedPolicy, has_parameters, is_dense
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.modes import has_train_mode
from rlsdk.networks.squashed_by_modules import ByModules
from rlsdk.networks.state_dependent_noise import NoiseMatrices, StateDependentNoise
from rlsdk.records import Act, Observation

LOG_STD_RANGE = (-20.0, 2.0)
SdeCarry = NoiseMatrices | tuple[()]


class SquashedActor(nn.Module):
    """A policy: encoder -> hidden layers -> mean and log std of a tanh-squashed Gaussian.

    With `sde` the log std comes from the state-dependent noise instead of a layer, and `mean` is clipped to
    +-`clip_mean`. New noise matrices are sampled at the start of a rollout and then every `resample_every` steps (None:
    only at the start).
    """

    _also_called = ("actor",)

    def __init__(
        self,
        encoder: nn.Module,
        body: nn.Sequential,
        latent: int,
        scale: ActionScale,
        sde: StateDependentNoise | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.body, self.scale, self.sde = encoder, body, scale, sde
        self.mean: nn.Module = nn.Linear(latent, scale.size)
        self.log_std: nn.Module | None = None if sde else nn.Linear(latent, scale.size)
        self.sde_body: nn.Module | None = None
        self.clip_mean = 0.0
        self.resample_every: int | None = None
        self.has_train_mode, self._choice = has_train_mode(encoder, body), AUTOGRAD
        self._kernels = KernelSlot(self._make_kernels, self)

    def use_kernel(self, choice: KernelChoice) -> SquashedActor:
        """Choose the kernel that evaluates the actor; returns the actor itself."""
        self._choice = choice
        self._kernels = KernelSlot(self._make_kernels, self)
        return self

    def _make_kernels(self, hooked: bool) -> tuple[Acts, SquashedPolicy]:
        """Build the kernels for acting and for learning."""
        self.has_train_mode = has_train_mode(self.encoder, self.body, self.sde_body)
        kernel = factory.squashed_policy(self._layers(), self._choice, hooked, ByModules(self.distribution))
        as_written = hooked or self.has_train_mode or self.sde is not None
        return factory.graphed_acting(partial(self._act, kernel), self, self._choice.setting, as_written), kernel

    def _layers(self) -> SquashedLayers | None:
        """The layers for a kernel; None if layers are not dense or the encoder has parameters."""
        log_std, layers = self.log_std, [*self.body, self.mean]
        if log_std is None or not len(self.body) or has_parameters(self.encoder):
            return None
        if not is_dense(layers) or not is_dense([log_std]):
            return None
        return SquashedLayers(
            list(self.body), cast("nn.Linear", self.mean), cast("nn.Linear", log_std), SquashedGaussian, LOG_STD_RANGE
        )

    def distribution(self, features: Tensor) -> SquashedGaussian:
        """The distribution over unit actions, for encoded `features` [N, F]."""
        latent = self.body(features)
        mean = self._mean(latent)
        if self.sde is not None:
            return SquashedGaussian(mean, self.sde.log_std_of(self._sde_latent(features, latent)))
        return SquashedGaussian(mean, cast("nn.Module", self.log_std)(latent).clamp(*LOG_STD_RANGE))

    def evaluate(self, features: Tensor, noise: Tensor) -> tuple[tuple[Tensor, Tensor], SampledVjp]:
        """Return ((unit actions [N, A], their log-densities [N]) without graph, vjp) for standard normal `noise` [N,
        A].

        `vjp` takes the gradients of a loss with respect to both. It writes the gradient with respect to the parameters
        into their `grad`, which it assumes to be zero.
        """
        return self._kernels()[1].evaluate((features, noise))

    def distribution_of(self, observation: Observation) -> SquashedGaussian:
        """The distribution over unit actions, for an observation."""
        return self.distribution(self.encoder(observation.features))

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """The squared error [N] of the deterministic action, in unit actions; see `rlsdk.interfaces.Imitates`.

        The standard deviation is not fitted.
        """
        return (self.distribution_of(observation).mode() - self.scale.to_unit(action)).square().mean(-1)

    def _mean(self, latent: Tensor) -> Tensor:
        mean: Tensor = self.mean(latent)
        return mean.clamp(-self.clip_mean, self.clip_mean) if self.sde is not None and self.clip_mean > 0.0 else mean

    def _sde_latent(self, features: Tensor, latent: Tensor) -> Tensor:
        return latent if self.sde_body is None else self.sde_body(features)

    def initial_carry(self, batch: int) -> SdeCarry:
        return () if self.sde is None else self.sde.initial(batch)

    @property
    def begin_rollout(self) -> Callable[[NoiseMatrices], NoiseMatrices] | None:
        """With gSDE, a function that returns the carry for the start of a rollout; see `rlsdk.interfaces.BeginsRollouts`."""
        return None if self.sde is None else StateDependentNoise.begin_rollout

    def act(
        self, observation: Observation, carry: SdeCarry, *, deterministic: bool, generator: Generator
    ) -> Act[SdeCarry, tuple[()]]:
        acts, _ = self._kernels()
        if self.has_train_mode:
            self.eval()
        return acts(observation, carry, deterministic, generator)

    @torch.no_grad()
    def _act(
        self, kernel: SquashedPolicy, observed: Observation, carry: SdeCarry, deterministic: bool, generator: Generator
    ) -> Act[SdeCarry, tuple[()]]:
        if self.sde is not None and not deterministic:
            return self._explore(self.sde, observed, cast("NoiseMatrices", carry), generator)
        unit = kernel.act(self.encoder(observed.features), deterministic, generator)
        return Act(self.scale.to_environment(unit), carry, ())

    def _explore(
        self, sde: StateDependentNoise, observed: Observation, carry: NoiseMatrices, generator: Generator
    ) -> Act[SdeCarry, tuple[()]]:
        """Act with state-dependent noise, for observations [B, ..]."""
        features = self.encoder(observed.features)
        latent, following = self.body(features), sde.refreshed(carry, self.resample_every, generator)
        noise = sde.noise(self._sde_latent(features, latent), following.matrix)
        return Act(self.scale.to_environment((self._mean(latent) + noise).tanh()), following, ())
