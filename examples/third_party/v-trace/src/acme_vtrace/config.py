"""The hyper-parameters."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, glossary, in_range

UNIT = in_range(0, 1)


@attrs.frozen
class VTraceConfig(AgentConfig):
    """The constructor parameters of V-trace, in order."""

    learning_rate: float = attrs.field(
        default=1e-3, validator=in_range(0, open_low=True), metadata=described("step size of Adam", tune=(1e-4, 1e-2))
    )
    n_steps: int = attrs.field(
        default=16, validator=in_range(1), metadata=described("rows of a sequence", unit="steps")
    )
    buffer_size: int = attrs.field(default=20_000, validator=in_range(1), metadata=glossary.BUFFER_SIZE)
    batch_size: int = attrs.field(default=8, validator=in_range(1), metadata=described("sequences of an update"))
    replay_ratio: int = attrs.field(
        default=1,
        validator=in_range(0),
        metadata=described("updates from replayed sequences after each from the last steps"),
    )
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    clip_rho: float = attrs.field(
        default=1.0,
        validator=in_range(0, open_low=True),
        metadata=described("bound of the weight of a temporal difference"),
    )
    clip_c: float = attrs.field(
        default=1.0,
        validator=in_range(0, open_low=True),
        metadata=described("bound of the weight of what follows a step"),
    )
    ent_coef: float = attrs.field(default=0.01, validator=in_range(0), metadata=described("weight of the entropy"))
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=described("weight of the value loss"))
    max_grad_norm: float = attrs.field(
        default=0.5, validator=in_range(0), metadata=described("bound of the gradient's norm")
    )
    hidden: int = attrs.field(default=64, validator=in_range(1), metadata=described("units of each hidden layer"))
