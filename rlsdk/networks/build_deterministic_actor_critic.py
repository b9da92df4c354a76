"""Builds the actor and critics of TD3 and DDPG from settings."""

from __future__ import annotations

from torch import nn

from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.build_encoder import build_encoder
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.deterministic_actor import DeterministicActor
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.ensemble import EnsembleMLP
from rlsdk.networks.own_networks import OwnCritics, OwnNetworkSettings, own_critics, own_network, require_own_features
from rlsdk.settings.deterministic_actor_critic import DeterministicSettings
from rlsdk.settings.networks import widths
from rlsdk.spaces import Box

HIDDEN = (400, 300)
NAMES = ("pi", "qf")


def build_deterministic_actor_critic(
    context: BuildContext, config: DeterministicSettings
) -> tuple[DeterministicActor, ContinuousCritics | OwnCritics]:
    """Build (actor, `n_critics` critics that predict one value each) on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    assert isinstance(context.action_space, Box)
    require_own_features(config.policy_kwargs)
    actor = _actor(context, config, ActionScale(context.action_space)).to(context.device)
    return actor, _critics(context, config, actor).to(context.device)


def _actor(context: BuildContext, config: DeterministicSettings, scale: ActionScale) -> DeterministicActor:
    networks = config.policy_kwargs
    if networks.actor_class is None:
        hidden = widths(networks.net_arch, "pi", HIDDEN, names=NAMES)
        encoder = build_encoder(context, config.policy, networks)
        return DeterministicActor(encoder, hidden, networks.activation_fn, scale, _kernel(context, config, hidden))
    given = OwnNetworkSettings("actor_class", networks.actor_class, networks.actor_kwargs, networks.normalize_images)
    encoder = own_network(context, given, (scale.size,), f"{scale.size} actions before tanh")
    actor = DeterministicActor(encoder, (), networks.activation_fn, scale)
    actor.mean = nn.Identity()  # the user's network returns the actions
    return actor


def _critics(
    context: BuildContext, config: DeterministicSettings, actor: DeterministicActor
) -> ContinuousCritics | OwnCritics:
    networks, size = config.policy_kwargs, actor.scale.size
    if networks.critic_class is not None:
        given = OwnNetworkSettings(
            "critic_class", networks.critic_class, networks.critic_kwargs, networks.normalize_images
        )
        return own_critics(context, given, size, 1, networks.n_critics)
    shared = networks.share_features_extractor
    encoder = actor.encoder if shared else build_encoder(context, config.policy, networks)
    wide = widths(networks.net_arch, "qf", HIDDEN, names=NAMES)
    ensemble = EnsembleMLP(networks.n_critics, features_dim(encoder) + size, wide, 1, networks.activation_fn)
    return ContinuousCritics(encoder, ensemble, _kernel(context, config, wide))


def _kernel(context: BuildContext, config: DeterministicSettings, hidden: tuple[int, ...]) -> KernelChoice:
    """The choice of the kernel for the dense layers of one network."""
    return KernelChoice(config.policy_kwargs.kernel, max(hidden, default=1), config.batch_size, context.device)
