"""Builds the actor and critics of the soft actor-critic family from settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import nn

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks.action_bounds import within_action_bounds
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.build_encoder import build_encoder
from rlsdk.networks.build_squashed_actor import build_squashed_actor
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.ensemble import EnsembleMLP
from rlsdk.networks.own_networks import (
    Columns,
    OwnCritics,
    OwnNetworkSettings,
    own_critics,
    own_network,
    require_own_features,
)
from rlsdk.networks.squashed_actor import SquashedActor
from rlsdk.settings.networks import widths
from rlsdk.spaces import Box

if TYPE_CHECKING:
    from rlsdk.settings.soft_actor_critic import SoftActorCriticConfig

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
    context = within_action_bounds(context, config.action_bounds)
    assert isinstance(context.action_space, Box)
    require_own_features(config.policy_kwargs)
    actor = _actor(context, config, ActionScale(context.action_space)).to(context.device)
    critics = _critics(context, config, actor, values_per_critic).to(context.device)
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
            nn.init.zeros_(actor.log_std.weight)
            nn.init.constant_(actor.log_std.bias, math.log(networks.initial_std))
        return actor.use_kernel(_kernel(config, context, hidden))
    every = config.sde_period
    return build_squashed_actor(encoder, hidden, networks.activation_fn, scale, sde=networks, resample_every=every)


def _own_actor(context: BuildContext, config: SoftActorCriticConfig, scale: ActionScale) -> SquashedActor:
    """Build an actor from a user's network, which returns A means, then A log standard deviations."""
    networks = config.policy_kwargs
    if config.use_sde:
        raise SettingsError(
            "use_sde = true needs an actor made by rlsdk; leave actor_class out, or give features_extractor_class"
        )
    given = OwnNetworkSettings("actor_class", networks.actor_class, networks.actor_kwargs, networks.normalize_images)
    size = scale.size
    encoder = own_network(context, given, (2 * size,), f"{size} means and {size} log standard deviations of actions")
    actor = SquashedActor(encoder, nn.Sequential(), 2 * size, scale)
    actor.mean, actor.log_std = Columns(0, size), Columns(size, 2 * size)
    return actor


def _critics(
    context: BuildContext, config: SoftActorCriticConfig, actor: SquashedActor, outputs: int
) -> ContinuousCritics | OwnCritics:
    networks = config.policy_kwargs
    if networks.critic_class is not None:
        given = OwnNetworkSettings(
            "critic_class", networks.critic_class, networks.critic_kwargs, networks.normalize_images
        )
        return own_critics(context, given, actor.scale.size, outputs, networks.n_critics)
    shared = networks.share_features_extractor
    encoder = actor.encoder if shared else build_encoder(context, config.policy, networks)
    inputs = features_dim(encoder) + actor.scale.size
    hidden = widths(networks.net_arch, "qf", HIDDEN, names=NAMES)
    ensemble = EnsembleMLP(networks.n_critics, inputs, hidden, outputs, networks.activation_fn)
    return ContinuousCritics(encoder, ensemble, _kernel(config, context, hidden))


def _kernel(config: SoftActorCriticConfig, context: BuildContext, hidden: tuple[int, ...]) -> KernelChoice:
    """The choice of the kernel for the dense layers of one network."""
    return KernelChoice(config.policy_kwargs.kernel, max(hidden, default=1), config.batch_size, context.device)
