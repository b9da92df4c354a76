"""Hyper-parameters of deterministic actor-critic methods: TD3 and DDPG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.fields import described, in_range
from rlsdk.settings.inherited import defaults
from rlsdk.settings.networks import NetworkConfig, arguments_of_class, as_module_class, as_net_arch
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig
from rlsdk.settings.schedules import Constant
from rlsdk.settings.strict import structure


@attrs.frozen(kw_only=True)
class DeterministicActorCriticNetworks(NetworkConfig):
    """`policy_kwargs` of deterministic actor-critic methods."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None, converter=as_net_arch, metadata=glossary.NET_ARCH | {"source": "none = [400, 300] for pi and qf"}
    )
    n_critics: int = attrs.field(default=2, validator=in_range(1), metadata=described("number of critics", tune=(1, 5)))
    share_features_extractor: bool = attrs.field(
        default=False,
        metadata=described("critics use the actor's features extractor, which then only the actor's loss trains"),
    )
    actor_class: Any = attrs.field(default=None, converter=as_module_class, metadata=glossary.ACTOR_CLASS)
    actor_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )
    critic_class: Any = attrs.field(default=None, converter=as_module_class, metadata=glossary.CONTINUOUS_CRITIC_CLASS)
    critic_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )


def as_networks(
    value: Mapping[str, object] | DeterministicActorCriticNetworks | None,
) -> DeterministicActorCriticNetworks:
    """Return the network settings, given a table of them, the settings object or None."""
    if isinstance(value, DeterministicActorCriticNetworks):
        return value
    return structure(value or {}, DeterministicActorCriticNetworks)


@attrs.frozen(field_transformer=defaults(learning_rate=Constant(1e-3)))
class DeterministicActorCriticConfig(ContinuousOffPolicyConfig):
    """The constructor parameters that TD3 and DDPG share, in order."""

    LIVE: ClassVar[tuple[str, ...]] = (*ContinuousOffPolicyConfig.LIVE, "action_noise")

    policy_kwargs: DeterministicActorCriticNetworks = attrs.field(
        factory=DeterministicActorCriticNetworks,
        converter=as_networks,
        kw_only=True,
        metadata=glossary.POLICY_KWARGS,
    )
