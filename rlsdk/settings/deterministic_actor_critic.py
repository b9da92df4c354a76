"""Hyper-parameters of deterministic actor-critic methods: TD3 and DDPG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.action_noise import ActionNoise
from rlsdk.settings.inherited import Default, defaults
from rlsdk.settings.networks import ActorAndCriticsConfig
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig
from rlsdk.settings.schedules import Constant, Schedule
from rlsdk.settings.strict import structure


@attrs.frozen(
    kw_only=True, field_transformer=defaults(net_arch=Default(None, source="none = [400, 300] for pi and qf"))
)
class DeterministicActorCriticNetworkConfig(ActorAndCriticsConfig):
    """`policy_kwargs` of deterministic actor-critic methods."""


def as_networks(
    value: Mapping[str, object] | DeterministicActorCriticNetworkConfig | None,
) -> DeterministicActorCriticNetworkConfig:
    """Return the network settings, given a table of them, the settings object or None."""
    if isinstance(value, DeterministicActorCriticNetworkConfig):
        return value
    return structure(value or {}, DeterministicActorCriticNetworkConfig)


@attrs.frozen(field_transformer=defaults(learning_rate=Constant(1e-3)))
class DeterministicActorCriticConfig(ContinuousOffPolicyConfig):
    """The constructor parameters that TD3 and DDPG share, in order."""

    LIVE: ClassVar[tuple[str, ...]] = (*ContinuousOffPolicyConfig.LIVE, "action_noise")

    policy_kwargs: DeterministicActorCriticNetworkConfig = attrs.field(
        factory=DeterministicActorCriticNetworkConfig,
        converter=as_networks,
        kw_only=True,
        metadata=glossary.POLICY_KWARGS,
    )


class DeterministicSettings(Protocol):
    """The settings that the networks and the update of TD3, DDPG and TD3+BC read.

    For DDPG, `policy_delay` is 1, both noises are 0 and there is one critic.
    """

    @property
    def policy(self) -> str: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def tau(self) -> float: ...
    @property
    def action_noise(self) -> ActionNoise | None: ...
    @property
    def policy_kwargs(self) -> DeterministicActorCriticNetworkConfig: ...
    @property
    def policy_delay(self) -> int:
        """Updates of the critics per update of the actor and of the target networks."""
        ...

    @property
    def target_policy_noise(self) -> float:
        """Standard deviation of the noise added to the target actor's actions, in the scaled action range [-1, 1]."""
        ...

    @property
    def target_noise_clip(self) -> float:
        """Largest absolute value of that noise."""
        ...
