"""The hyper-parameters. The constructor, `rlsdk info`, `--set` and settings files read them from here."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range


@attrs.frozen
class ReinforceConfig(AgentConfig):
    """The constructor parameters of REINFORCE, in order."""

    learning_rate: float = attrs.field(
        default=5e-3,
        validator=in_range(0, open_low=True),
        metadata=described("learning rate of Adam", tune=(1e-4, 1e-1)),
    )
    n_steps: int = attrs.field(default=512, validator=in_range(1))
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1))
    hidden: int = attrs.field(default=32, validator=in_range(1), metadata=described("units of the hidden layer"))
