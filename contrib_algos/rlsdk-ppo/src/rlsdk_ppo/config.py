"""The hyper-parameters of PPO. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import ClippedPolicyConfig, RecurrentConfig, structure


def _networks(value: Mapping[str, object] | RecurrentConfig | None) -> RecurrentConfig:
    return structure(value or {}, RecurrentConfig)


@attrs.frozen
class PPOConfig(ClippedPolicyConfig):
    """The constructor parameters of PPO, in order. Settings of the memory apply to recurrent policies only."""

    policy_kwargs: RecurrentConfig = attrs.field(factory=RecurrentConfig, converter=_networks, kw_only=True)
