"""Every hyper-parameter once."""

from __future__ import annotations

import attrs
from rlsdk.settings import AgentConfig, Constant, Schedule, as_schedule, described, finite_schedule, glossary, in_range


@attrs.frozen
class RecallConfig(AgentConfig):
    """The constructor parameters, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(1e-3), converter=as_schedule, validator=finite_schedule(), metadata=glossary.LEARNING_RATE
    )
    buffer_size: int = attrs.field(default=10_000, validator=in_range(1), metadata=glossary.BUFFER_SIZE)
    learning_starts: int = attrs.field(default=100, validator=in_range(0), metadata=glossary.LEARNING_STARTS)
    batch_size: int = attrs.field(default=32, validator=in_range(1), metadata=described("steps of an update"))
    tau: float = attrs.field(  # called polyak before 1.1.0
        default=0.05, validator=in_range(0, 1), metadata=described("part of the way that the target moves in an update")
    )
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1), metadata=glossary.GAMMA)
    train_freq: int = attrs.field(default=4, validator=in_range(1), metadata=described("steps between updates"))
    temperature: float = attrs.field(
        default=0.1, validator=in_range(0, open_low=True), metadata=described("of the softmax that explores")
    )
    hidden: int = attrs.field(default=32, validator=in_range(1), metadata=described("units of each hidden layer"))
