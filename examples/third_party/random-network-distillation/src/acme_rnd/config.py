"""The hyper-parameters."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range

UNIT = in_range(0, 1)


@attrs.frozen
class RNDConfig(AgentConfig):
    """The constructor parameters of RND, in order."""

    learning_rate: float = attrs.field(
        default=1e-3, validator=in_range(0, open_low=True), metadata=described("step size of Adam", tune=(1e-4, 1e-2))
    )
    n_steps: int = attrs.field(default=1024, validator=in_range(2))
    batch_size: int = attrs.field(default=128, validator=in_range(2))
    n_epochs: int = attrs.field(default=4, validator=in_range(1), metadata=described("passes over each rollout"))
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    intrinsic_gamma: float = attrs.field(
        default=0.99, validator=UNIT, metadata=described("discount factor of the intrinsic return")
    )
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT, metadata=described("GAE lambda of both advantages"))
    clip_range: float = attrs.field(default=0.2, validator=in_range(0), metadata=described("clip range of PPO's ratio"))
    extrinsic_coef: float = attrs.field(
        default=2.0,
        validator=in_range(0),
        metadata=described("weight of the extrinsic advantage (from the environment's rewards)", source="appendix A.4"),
    )
    intrinsic_coef: float = attrs.field(
        default=1.0, validator=in_range(0), metadata=described("weight of the intrinsic advantage; 0 = plain PPO")
    )
    ent_coef: float = attrs.field(
        default=0.01, validator=in_range(0), metadata=described("weight of the entropy bonus")
    )
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=described("weight of both value losses"))
    max_grad_norm: float = attrs.field(
        default=0.5, validator=in_range(0), metadata=described("maximum norm of the gradient")
    )
    hidden: int = attrs.field(default=64, validator=in_range(1), metadata=described("units of each hidden layer"))
