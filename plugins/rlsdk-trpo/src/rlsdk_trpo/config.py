"""The hyper-parameters of TRPO. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

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
    structure,
)

UNIT = in_range(0.0, 1.0)


def _policy_settings(value: Mapping[str, object] | ActorCriticConfig | None) -> ActorCriticConfig:
    return structure(value or {}, ActorCriticConfig)


@attrs.frozen
class TRPOConfig(AgentConfig):
    """The constructor parameters of TRPO, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(1e-3),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=described("learning rate of the value function; may be a schedule", tune=(1e-4, 1e-2)),
    )
    n_steps: int = attrs.field(default=2048, validator=in_range(1))
    batch_size: int = attrs.field(
        default=128,
        validator=in_range(1),
        metadata=described("steps per minibatch of the value function", unit="steps"),
    )
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    cg_max_steps: int = attrs.field(
        default=15,
        validator=in_range(1),
        metadata=described("maximum number of conjugate-gradient steps", tune=(5, 30)),
    )
    cg_damping: float = attrs.field(
        default=0.1,
        validator=in_range(0),
        metadata=described("damping: number added to the diagonal of the Fisher matrix", tune=(0.001, 0.5)),
    )
    line_search_shrinking_factor: float = attrs.field(
        default=0.8,
        validator=in_range(0, 1, open_low=True, open_high=True),
        metadata=described(
            "line search: factor that shortens the step until the objective rises and the KL divergence is within"
            " target_kl"
        ),
    )
    line_search_max_iter: int = attrs.field(
        default=10,
        validator=in_range(1),
        metadata=described("line search: maximum number of step lengths that are tried"),
    )
    n_critic_updates: int = attrs.field(
        default=10, validator=in_range(1), metadata=described("epochs of the value function: passes over each rollout")
    )
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT)
    use_sde: bool = False
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1))
    normalize_advantage: bool = True
    target_kl: Schedule = attrs.field(
        default=Constant(0.01),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=described(
            "upper bound of the KL divergence of an update of the policy; may be a schedule",
            source="arXiv:1502.05477",
            tune=(0.005, 0.05),
        ),
    )
    sub_sampling_factor: int = attrs.field(
        default=1,
        validator=in_range(1),
        metadata=described("an update of the policy uses 1 / sub_sampling_factor of the rollout's steps, to be faster"),
    )
    kl_per_dimension: bool = attrs.field(
        default=True,
        kw_only=True,
        metadata=described(
            "target_kl bounds the mean KL divergence per dimension of Box and MultiBinary actions, as in sb3-contrib;"
            " false = the KL divergence of the whole action, as in the paper"
        ),
    )
    policy_kwargs: ActorCriticConfig = attrs.field(factory=ActorCriticConfig, converter=_policy_settings, kw_only=True)
