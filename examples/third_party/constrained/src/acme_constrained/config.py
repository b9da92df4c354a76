"""The hyper-parameters: three of the constraint, and those of PPO."""

from __future__ import annotations

import attrs

from rlsdk.settings import (
    ActorCriticConfig,
    AgentConfig,
    Constant,
    Schedule,
    as_schedule,
    described,
    finite_schedule,
    in_range,
)


@attrs.frozen
class LagrangianConfig(AgentConfig):
    """The constructor parameters, in order."""

    cost_limit: float = attrs.field(
        default=25.0, validator=in_range(0), metadata=described("allowed mean cost per episode")
    )
    multiplier_rate: float = attrs.field(
        default=0.02, validator=in_range(0), metadata=described("step size of the Lagrange multiplier of the cost")
    )
    initial_multiplier: float = attrs.field(
        default=0.0, validator=in_range(0), metadata=described("initial value of the Lagrange multiplier of the cost")
    )
    learning_rate: Schedule = attrs.field(default=Constant(3e-4), converter=as_schedule, validator=finite_schedule())
    n_steps: int = attrs.field(default=1024, validator=in_range(1))
    batch_size: int | None = attrs.field(
        default=64,
        validator=in_range(1),
        metadata=described("steps per minibatch; none = the whole rollout", unit="steps"),
    )
    n_epochs: int = attrs.field(default=10, validator=in_range(1))
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1))
    gae_lambda: float = attrs.field(default=0.95, validator=in_range(0, 1))
    clip_range: Schedule = attrs.field(default=Constant(0.2), converter=as_schedule, validator=finite_schedule())
    clip_range_vf: Schedule | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_schedule),
        validator=attrs.validators.optional(finite_schedule()),
    )
    normalize_advantage: bool = True
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0))
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0))
    max_grad_norm: float = attrs.field(default=0.5, validator=in_range(0, open_low=True))
    target_kl: float | None = attrs.field(default=None, validator=in_range(0, open_low=True))
    policy_kwargs: ActorCriticConfig = attrs.field(factory=ActorCriticConfig, kw_only=True)
