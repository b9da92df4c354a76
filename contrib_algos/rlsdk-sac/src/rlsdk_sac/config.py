"""The hyper-parameters of SAC. Constructor, help, CLI, settings files and docs are derived from this class."""

from __future__ import annotations

import attrs

from rlsdk.settings import SoftActorCriticConfig, positional_after


@attrs.frozen(field_transformer=positional_after(n_steps="optimize_memory_usage"))
class SACConfig(SoftActorCriticConfig):
    """The constructor parameters of SAC, in order."""
