"""The hyper-parameters of DDPG. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from rlsdk.settings import (
    DeterministicActorCriticConfig,
    DeterministicActorCriticNetworkConfig,
    defaults,
    positional_after,
    structure,
)


@attrs.frozen(kw_only=True, field_transformer=defaults(n_critics=1))
class DDPGPolicyConfig(DeterministicActorCriticNetworkConfig):
    """The settings of networks, `policy_kwargs`, of DDPG."""


def _networks(value: Mapping[str, object] | DDPGPolicyConfig | None) -> DDPGPolicyConfig:
    return structure(value or {}, DDPGPolicyConfig)


@attrs.frozen(field_transformer=positional_after(n_steps="optimize_memory_usage"))
class DDPGConfig(DeterministicActorCriticConfig):
    """The constructor parameters of DDPG, in order. TD3 with the values below gives the same results, bit for bit."""

    policy_delay: ClassVar[int] = 1
    target_policy_noise: ClassVar[float] = 0.0
    target_noise_clip: ClassVar[float] = 0.0

    policy_kwargs: DDPGPolicyConfig = attrs.field(factory=DDPGPolicyConfig, converter=_networks, kw_only=True)
