"""The hyper-parameters of DQN. Constructor, help, CLI, settings files and docs are derived from this class."""

from __future__ import annotations

import attrs

from rlsdk.settings import QLearningConfig, positional_after


@attrs.frozen(field_transformer=positional_after(n_steps="optimize_memory_usage"))
class DQNConfig(QLearningConfig):
    """The constructor parameters of DQN, in order."""
