"""The actor of the soft actor-critic family: a squashed Gaussian policy, with independent or state-dependent noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import SquashedGaussian
from rlsdk.engines import NUMPY, NUMPY_ACTING_ROWS, Fitted, Library, Stack, fits, stack_of
from rlsdk.exploration.state_dependent_noise import NoiseMatrices, StateDependentNoise
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.flat import backward
from rlsdk.networks.modes import mode_matters
from rlsdk.records import Act, Observation

LOG_STD_RANGE = (-20.0, 2.0)
SdeCarry = NoiseMatrices | tuple[()]


class SquashedActor(nn.Module):
    """A policy: encoder -> hidden layers -> mean and log std of a tanh-squashed Gaussian.

    With `sde` the log std comes from the state-dependent noise instead of a layer, `mean` is clipped to +-`clip_mean`,
    and the noise matrices are drawn when a rollout begins, and every `resample_every` steps from there (None: no more).
    """

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
        self.mean = nn.Linear(latent, scale.size)
        self.log_std = None if sde else nn.Linear(latent, scale.size)
        self.sde_body: nn.Module | None = None
        self.clip_mean = 0.0
        self.resample_every: int | None = None
        self.mode_matters = mode_matters(encoder, body)
        self._library: Library | None = None
        self._stacks: Fitted[_Stacks | None] = Fitted(self._fit, self)

    def run_by_hand(self, library: Library | None) -> SquashedActor:
        """Let `library` run the dense layers, where there is nothing else; returns the actor itself."""
        self._library = library
        self._stacks = Fitted(self._fit, self)
        return self

    def _fit(self, hooked: bool) -> _Stacks | None:
        """What runs the dense layers by hand, where that is possible."""
        self.mode_matters = mode_matters(self.encoder, self.body, self.sde_body)
        if hooked or self._library is None or self.log_std is None or not len(self.body):
            return None
        acting = stack_of([*self.body, self.mean], self.encoder, NUMPY)
        return _Stacks(self, self._library, acting) if acting and fits([self.log_std]) else None

    def distribution(self, features: Tensor) -> SquashedGaussian:
        """Over unit actions, for encoded `features` [N, F]."""
        latent = self.body(features)
        mean = self._mean(latent)
        if self.sde is not None:
            return SquashedGaussian(mean, self.sde.log_std_of(self._sde_latent(features, latent)))
        assert self.log_std is not None
        return SquashedGaussian(mean, self.log_std(latent).clamp(*LOG_STD_RANGE))

    def sampled(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], None]]:
        """(unit actions [N, A], their log-densities [N], what brings the gradient of a loss with respect to both into the
        parameters' `grad`, which is taken to be zero), for standard normal `noise` [N, A]; without graph."""
        stacks = self._stacks()
        if stacks is not None:
            return stacks.sampled(features, noise)
        action, log_prob = self.distribution(features).transform(noise)

        def pull(of_action: Tensor, of_log_prob: Tensor) -> None:
            backward([action, log_prob], [of_action, of_log_prob])

        return action.detach(), log_prob.detach(), pull

    def distribution_of(self, observation: Observation) -> SquashedGaussian:
        """Over unit actions, for an observation."""
        return self.distribution(self.encoder(observation.features))

    def _mean(self, latent: Tensor) -> Tensor:
        mean: Tensor = self.mean(latent)
        return mean.clamp(-self.clip_mean, self.clip_mean) if self.sde is not None and self.clip_mean > 0.0 else mean

    def _sde_latent(self, features: Tensor, latent: Tensor) -> Tensor:
        return latent if self.sde_body is None else self.sde_body(features)

    def initial_carry(self, batch: int) -> SdeCarry:
        return () if self.sde is None else self.sde.initial(batch)

    @property
    def begin_rollout(self) -> Callable[[NoiseMatrices], NoiseMatrices] | None:
        """With gSDE: makes the carry to begin a rollout with, see `Policy`."""
        return None if self.sde is None else StateDependentNoise.begin_rollout

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: SdeCarry, *, deterministic: bool, generator: Generator
    ) -> Act[SdeCarry, tuple[()]]:
        stacks = self._stacks()
        if self.mode_matters:
            self.eval()
        features = self.encoder(observation.features)
        if stacks is not None and len(features) <= NUMPY_ACTING_ROWS and features.is_cpu:
            unit = stacks.unit_action(features, deterministic, generator)
        elif deterministic:
            unit = self._mean(self.body(features)).tanh()
        elif self.sde is None:
            unit = self.distribution(features).sample(generator)
        else:
            assert isinstance(carry, NoiseMatrices)
            unit, carry = self._explore(features, carry, generator)
        return Act(self.scale.to_environment(unit), carry, ())

    def _explore(self, features: Tensor, carry: NoiseMatrices, generator: Generator) -> tuple[Tensor, NoiseMatrices]:
        """Unit actions with state-dependent noise, and the carry one step older."""
        assert self.sde is not None
        following = self.sde.refreshed(carry, self.resample_every, generator)
        latent = self.body(features)
        noise = self.sde.noise(self._sde_latent(features, latent), following.matrix)
        return (self._mean(latent) + noise).tanh(), following


class _Stacks:
    """Body, mean and log std run by hand."""

    def __init__(self, actor: SquashedActor, library: Library, acting: Stack) -> None:
        self._acting, self._spread = acting, Stack([cast("nn.Linear", actor.log_std)], NUMPY)
        self.library, log_std = library, cast("nn.Linear", actor.log_std)
        self.body, self.mean, self.log_std = (Stack(part, library) for part in (actor.body, [actor.mean], [log_std]))

    def unit_action(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Unit actions for few rows, where calling torch would cost more than the arithmetic."""
        mean, trace = self._acting.forward(features.numpy())
        if deterministic:
            return torch.from_numpy(np.tanh(mean))
        log_std = self._spread(trace[-2])
        noise = torch.randn(mean.shape, generator=generator).numpy()
        std = np.exp(np.minimum(np.maximum(log_std, LOG_STD_RANGE[0]), LOG_STD_RANGE[1]))
        return torch.from_numpy(np.tanh(mean + std * noise))

    @torch.no_grad()
    def sampled(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], None]]:
        array, tensor = self.library.array, self.library.tensor
        latent, trace = self.body.forward(array(features))
        mean, raw = self.mean(latent), tensor(self.log_std(latent))
        distribution = SquashedGaussian(tensor(mean), raw.clamp(*LOG_STD_RANGE))
        action, log_prob = distribution.transform(noise)

        @torch.no_grad()
        def pull(of_action: Tensor, of_log_prob: Tensor) -> None:
            of_mean, of_log_std = distribution.transform_slope(noise, action, of_action, of_log_prob)
            of_log_std *= (raw >= LOG_STD_RANGE[0]) & (raw <= LOG_STD_RANGE[1])
            slope = self.mean.input_slope([latent, mean], array(of_mean), self.mean.gradients())
            slope += self.log_std.input_slope([latent, array(raw)], array(of_log_std), self.log_std.gradients())
            self.body.backward(trace, slope, self.body.gradients())

        return action, log_prob, pull
