"""Actors of continuous actions: squashed Gaussian and deterministic, and the builders of actors and critics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import SquashedGaussian
from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, explain_names
from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import (
    AUTOGRAD,
    Acting,
    Acts,
    DenseNetwork,
    SampledVjp,
    SquashedLayers,
    SquashedPolicy,
    has_parameters,
    is_dense,
)
from rlsdk.kernels.reference import Autograd, AutogradPair
from rlsdk.networks.action_heads import ActionScale, NoiseMatrices, StateDependentNoise, within_action_bounds
from rlsdk.networks.critics import (
    ContinuousCritics,
    OutputColumns,
    OwnCritics,
    own_critics,
    own_network,
    require_own_features,
)
from rlsdk.networks.encoders import build_encoder, features_dim
from rlsdk.networks.layers import EnsembleMLP, has_train_mode, mlp
from rlsdk.records import Act, Observation
from rlsdk.settings.actor_critic import widths
from rlsdk.settings.off_policy import DeterministicSettings, SoftActorCriticNetworkConfig
from rlsdk.spaces import Box

if TYPE_CHECKING:
    from rlsdk.settings.off_policy import SoftActorCriticConfig

LOG_STD_RANGE = (-20.0, 2.0)
SdeCarry = NoiseMatrices | tuple[()]


@explain_names
class SquashedActor(nn.Module):
    """A policy: encoder -> hidden layers -> mean and log std of a tanh-squashed Gaussian.

    With `sde` the log std comes from the state-dependent noise instead of a layer, and `mean` is clipped to
    +-`clip_mean`. New noise matrices are sampled at the start of a rollout and then every `resample_every` steps (None:
    only at the start).
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
        self.mean: nn.Module = nn.Linear(latent, scale.size)
        self.log_std: nn.Module | None = None if sde else nn.Linear(latent, scale.size)
        # attributes instead of arguments, because only actors with gSDE set them
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
        kernel = factory.squashed_policy(self._layers(), self._choice, hooked, SquashedByModules(self.distribution))
        # a CUDA graph repeats operations, and would skip hooks, modes and the draws of new noise matrices
        as_written = hooked or self.has_train_mode or self.sde is not None
        return factory.graphed_acting(partial(self._act, kernel), self, self._choice.setting, as_written), kernel

    def _layers(self) -> SquashedLayers | None:
        """The layers for a kernel; None if layers are not dense or the encoder has parameters."""
        log_std, layers = self.log_std, [*self.body, self.mean]
        # kernels compute no gradients of an encoder, so one with parameters needs autograd
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
        # clamped: deviations beyond these overflow exp, or leave no gradient
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
        """The squared error [N] of the deterministic action, in unit actions; see `rlsdk.interfaces.PolicyAbilities`.

        The standard deviation is not fitted.
        """
        # not the likelihood: recorded actions at the bounds have no finite density after tanh
        return (self.distribution_of(observation).mode() - self.scale.to_unit(action)).square().mean(-1)

    def _mean(self, latent: Tensor) -> Tensor:
        mean: Tensor = self.mean(latent)
        # with gSDE a large mean would saturate tanh, and noise would no longer explore
        return mean.clamp(-self.clip_mean, self.clip_mean) if self.sde is not None and self.clip_mean > 0.0 else mean

    def _sde_latent(self, features: Tensor, latent: Tensor) -> Tensor:
        return latent if self.sde_body is None else self.sde_body(features)

    def initial_carry(self, batch: int) -> SdeCarry:
        return () if self.sde is None else self.sde.initial(batch)

    @property
    def begin_rollout(self) -> Callable[[NoiseMatrices], NoiseMatrices] | None:
        """With gSDE, a function that returns the carry for the start of a rollout; see `rlsdk.interfaces.PolicyAbilities`."""
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
        # squashed after the noise, so that explored actions stay inside the bounds
        return Act(self.scale.to_environment((self._mean(latent) + noise).tanh()), following, ())


class SquashedByModules(AutogradPair):
    """See `rlsdk.kernels.protocol.SquashedPolicy`."""

    def __init__(self, distribution: Callable[[Tensor], SquashedGaussian]) -> None:
        """`distribution` returns the distribution over unit actions [N, A] for features [N, F]."""
        # the noise is an input, so that a sample is a function of parameters that autograd can differentiate
        super().__init__(lambda inputs: distribution(inputs[0]).transform(inputs[1]))
        self.distribution = distribution

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Unit actions [N, A] for features [N, F]."""
        distribution = self.distribution(features)
        return distribution.mode() if deterministic else distribution.sample(generator)


def build_squashed_actor(
    encoder: nn.Module,
    hidden: Sequence[int],
    activation_fn: str | Callable[[], nn.Module],
    scale: ActionScale,
    *,
    sde: SoftActorCriticNetworkConfig | None = None,
    resample_every: int | None = None,
) -> SquashedActor:
    """Build an actor on top of `encoder`. With `sde` it explores with state-dependent noise."""
    inputs = features_dim(encoder)
    body = mlp(inputs, hidden, activation_fn)
    latent = hidden[-1] if hidden else inputs
    if sde is None:
        return SquashedActor(encoder, body, latent, scale)
    # None takes the features of the actor; an empty list takes those of the encoder
    own = sde.sde_net_arch
    sde_latent = latent if own is None else own[-1] if own else inputs
    noise = StateDependentNoise(sde_latent, scale.size, sde.log_std_init, sde.use_expln, learn_features=True)
    actor = SquashedActor(encoder, body, latent, scale, noise)
    actor.sde_body = None if own is None else mlp(inputs, own, activation_fn)
    actor.clip_mean, actor.resample_every = sde.clip_mean, resample_every
    return actor


@explain_names
class DeterministicActor(nn.Module):
    """A policy: encoder -> hidden layers -> tanh, which gives unit actions [N, A].

    It does not explore; `rlsdk.exploration.noisy_behavior` adds noise to its actions.
    """

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
        """The squared error [N] of unit actions; see `rlsdk.interfaces.PolicyAbilities`."""
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
    # the noise is clipped first, so that the target action stays near the actor's; then the bounds hold
    return (unit_action + (std * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)


HIDDEN = (256, 256)
NAMES = ("pi", "qf")


def build_soft_actor_critic(
    context: BuildContext, config: SoftActorCriticConfig, values_per_critic: int = 1
) -> tuple[SquashedActor, ContinuousCritics | OwnCritics]:
    """Build (actor, `n_critics` critics that predict `values_per_critic` values each) on the context's device.

    The actor acts inside `config.action_bounds`. To restrict exploration too, build it from
    `within_action_bounds(context, ..)`.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    # again, because plugins may have built the context without the bounds; narrowing twice changes nothing
    context = within_action_bounds(context, config.action_bounds)
    assert isinstance(context.action_space, Box)
    require_own_features(config.policy_kwargs)
    actor = _actor(context, config, ActionScale(context.action_space)).to(context.device)
    critics = _critics(context, config, actor, HIDDEN, values_per_critic).to(context.device)
    return actor, critics


def _actor(context: BuildContext, config: SoftActorCriticConfig, scale: ActionScale) -> SquashedActor:
    networks = config.policy_kwargs
    if networks.initial_std is not None and (config.use_sde or networks.actor_class is not None):
        what = "use_sde = true has log_std_init" if config.use_sde else "actor_class makes its own deviations"
        raise SettingsError(f"initial_std is for actors without gSDE that rlsdk makes: {what}; leave initial_std out")
    if networks.actor_class is not None:
        return _own_actor(context, config, scale)
    encoder = build_encoder(context, config.policy, networks)
    hidden = widths(networks.net_arch, "pi", HIDDEN, names=NAMES)
    if not config.use_sde:
        actor = build_squashed_actor(encoder, hidden, networks.activation_fn, scale)
        if networks.initial_std is not None:
            assert isinstance(actor.log_std, nn.Linear)
            # zero weights, so that the first deviation is the same for every observation
            nn.init.zeros_(actor.log_std.weight)
            nn.init.constant_(actor.log_std.bias, math.log(networks.initial_std))
        return actor.use_kernel(_kernel(context, config, hidden))
    every = config.sde_period
    return build_squashed_actor(encoder, hidden, networks.activation_fn, scale, sde=networks, resample_every=every)


def _own_actor(context: BuildContext, config: SoftActorCriticConfig, scale: ActionScale) -> SquashedActor:
    """Build an actor from a user's network, which returns A means, then A log standard deviations."""
    networks = config.policy_kwargs
    if config.use_sde:
        raise SettingsError(
            "use_sde = true needs an actor made by rlsdk; leave actor_class out, or give features_extractor_class"
        )
    size = scale.size
    what = f"{size} means and {size} log standard deviations of actions"
    encoder = own_network(context, networks, "actor", (2 * size,), what)
    actor = SquashedActor(encoder, nn.Sequential(), 2 * size, scale)
    # in place of the layers: all columns are those of the user's network
    actor.mean, actor.log_std = OutputColumns(0, size), OutputColumns(size, 2 * size)
    return actor


def _critics(
    context: BuildContext,
    config: SoftActorCriticConfig | DeterministicSettings,
    actor: SquashedActor | DeterministicActor,
    default: tuple[int, ...],
    outputs: int = 1,
) -> ContinuousCritics | OwnCritics:
    """Build `n_critics` critics; `default` are the hidden layers without `net_arch`."""
    networks, size = config.policy_kwargs, actor.scale.size
    if networks.subset_size is not None and networks.subset_size > networks.n_critics:
        raise SettingsError(
            f"subset_size = {networks.subset_size} of n_critics = {networks.n_critics}; raise n_critics"
        )
    if networks.critic_class is not None:
        return own_critics(context, networks, size, outputs)
    # after the actor, because the order of construction is that of the random numbers
    encoder = actor.encoder if networks.share_features_extractor else build_encoder(context, config.policy, networks)
    hidden = widths(networks.net_arch, "qf", default, names=NAMES)
    ensemble = EnsembleMLP(networks.n_critics, features_dim(encoder) + size, hidden, outputs, networks.activation_fn)
    return ContinuousCritics(encoder, ensemble, _kernel(context, config, hidden))


def _kernel(
    context: BuildContext, config: SoftActorCriticConfig | DeterministicSettings, hidden: tuple[int, ...]
) -> KernelChoice:
    """The choice of the kernel for the dense layers of one network."""
    return KernelChoice(config.policy_kwargs.kernel, max(hidden, default=1), config.batch_size, context.device)


DETERMINISTIC_HIDDEN = (400, 300)


def build_deterministic_actor_critic(
    context: BuildContext, config: DeterministicSettings
) -> tuple[DeterministicActor, ContinuousCritics | OwnCritics]:
    """Build (actor, `n_critics` critics that predict one value each) on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    assert isinstance(context.action_space, Box)
    require_own_features(config.policy_kwargs)
    actor = _deterministic_actor(context, config, ActionScale(context.action_space)).to(context.device)
    return actor, _critics(context, config, actor, DETERMINISTIC_HIDDEN).to(context.device)


def _deterministic_actor(
    context: BuildContext, config: DeterministicSettings, scale: ActionScale
) -> DeterministicActor:
    networks = config.policy_kwargs
    if networks.actor_class is None:
        hidden = widths(networks.net_arch, "pi", DETERMINISTIC_HIDDEN, names=NAMES)
        encoder = build_encoder(context, config.policy, networks)
        return DeterministicActor(encoder, hidden, networks.activation_fn, scale, _kernel(context, config, hidden))
    own = own_network(context, networks, "actor", (scale.size,), f"{scale.size} actions before tanh")
    actor = DeterministicActor(own, (), networks.activation_fn, scale)
    # tanh follows in `unit_action`, as for every actor
    actor.mean = nn.Identity()  # the user's network returns the actions
    return actor
