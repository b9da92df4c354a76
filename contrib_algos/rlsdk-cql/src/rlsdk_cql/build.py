"""Assembles the parts of CQL. No other module chooses them."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_discrete_value_policy, build_soft_actor_critic
from rlsdk.settings import (
    DiscreteValueConfig,
    NetworkConfig,
    QLearningConfig,
    SoftActorCriticConfig,
    SoftActorCriticNetworkConfig,
    widths,
)
from rlsdk.spaces import Box
from rlsdk_cql.config import CQLConfig
from rlsdk_cql.continuous import ConservativeActorCritic
from rlsdk_cql.discrete import ConservativeQLearning
from rlsdk_datasets import OfflinePlan, RecordedTransitions

HIDDEN = (256, 256)
SHARED = (
    "activation_fn",
    "features_extractor_class",
    "features_extractor_kwargs",
    "normalize_images",
    "kernel",
)
"""The settings of networks that are those of the core."""


def build(context: BuildContext, config: CQLConfig) -> Parts:
    """Build the parts of one CQL agent: an actor and critics for Box actions, or one network of values for choices.

    Raises:
        UnsupportedSpaceError: the action space is another one or a Box without bounds, or the policy does not fit the
            observations.
        SettingsError: there is no data set, or the settings do not fit the spaces.
    """
    require_spaces(context, "CQL", actions=("Box", "Discrete", "MultiDiscrete"))
    if config.dataset is None:
        raise SettingsError("cql learns from recorded episodes: give dataset=PATH, or --dataset FILE")
    buffer = RecordedTransitions(config.dataset, context, gamma=config.gamma)
    plan = OfflinePlan(config.batch_size)
    if not isinstance(context.action_space, Box):
        policy = build_discrete_value_policy(context, _values(config))
        return Parts(policy, ConservativeQLearning(policy, config, context.device), plan, buffer)
    actor, critics = build_soft_actor_critic(context, _actor_and_critics(config))
    update = ConservativeActorCritic(actor, critics, config, context.streams["update"])
    return Parts(actor, update, plan, buffer)


def _shared(networks: NetworkConfig) -> dict[str, object]:
    return {name: getattr(networks, name) for name in SHARED}


def _actor_and_critics(config: CQLConfig) -> SoftActorCriticConfig:
    """The settings from which the core builds the networks for Box actions."""
    networks = config.policy_kwargs
    layers = {name: widths(networks.net_arch, name, HIDDEN, names=("pi", "qf")) for name in ("pi", "qf")}
    given = SoftActorCriticNetworkConfig(net_arch=layers, n_critics=networks.n_critics, **_shared(networks))  # type: ignore[arg-type]
    return SoftActorCriticConfig(
        config.policy,
        batch_size=config.batch_size,
        ent_coef=config.ent_coef,
        target_entropy=config.target_entropy,
        policy_kwargs=given,
    )


def _values(config: CQLConfig) -> QLearningConfig:
    """The settings from which the core builds the network for choices."""
    networks = config.policy_kwargs
    layers = {"qf": widths(networks.net_arch, "qf", HIDDEN, names=("pi", "qf"))}
    given = DiscreteValueConfig(net_arch=layers, **_shared(networks))  # type: ignore[arg-type]
    return QLearningConfig(config.policy, batch_size=config.batch_size, policy_kwargs=given)
