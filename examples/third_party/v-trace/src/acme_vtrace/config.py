"""The hyper-parameters."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range

UNIT = in_range(0, 1)


@attrs.frozen
class VTraceConfig(AgentConfig):
    """The constructor parameters of V-trace, in order."""

    learning_rate: float = attrs.field(
        default=1e-3,
        validator=in_range(0, open_low=True),
        metadata=described("learning rate of Adam", tune=(1e-4, 1e-2)),
    )
    n_steps: int = attrs.field(
        default=16,
        validator=in_range(1),
        metadata=described("steps per environment in each rollout, and steps of each replayed sequence", unit="steps"),
    )
    buffer_size: int = attrs.field(default=20_000, validator=in_range(1))
    batch_size: int = attrs.field(
        default=8, validator=in_range(1), metadata=described("sequences per update from replay")
    )
    replay_ratio: int = attrs.field(
        default=1,
        validator=in_range(0),
        metadata=described("updates from replayed sequences after each update from the latest rollout"),
    )
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    clip_rho: float = attrs.field(
        default=1.0,
        validator=in_range(0, open_low=True),
        metadata=described("V-trace: bound of the importance weight rho of a temporal difference"),
    )
    clip_c: float = attrs.field(
        default=1.0,
        validator=in_range(0, open_low=True),
        metadata=described("V-trace: bound of the importance weight c of the temporal differences of later steps"),
    )
    ent_coef: float = attrs.field(
        default=0.01, validator=in_range(0), metadata=described("weight of the entropy bonus")
    )
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=described("weight of the value loss"))
    max_grad_norm: float = attrs.field(
        default=0.5, validator=in_range(0), metadata=described("maximum norm of the gradient")
    )
    hidden: int = attrs.field(default=64, validator=in_range(1), metadata=described("units of each hidden layer"))
