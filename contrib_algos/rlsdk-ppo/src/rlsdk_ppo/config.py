"""The hyper-parameters of PPO. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.actor_critic import ClippedPolicySdeConfig, RecurrentConfig


@attrs.frozen
class PPOConfig(ClippedPolicySdeConfig):
    """The constructor parameters of PPO, in order. Settings of the memory apply to recurrent policies only."""

    policy_kwargs: RecurrentConfig = attrs.field(factory=RecurrentConfig, kw_only=True, metadata=glossary.POLICY_KWARGS)
