"""Hyper-parameters of proximal policy optimisation."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.actor_critic import ActorCriticConfig
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.fields import finite_schedule, in_range
from rlsdk.settings.schedules import Constant, Schedule, as_schedule, optional_schedule
from rlsdk.settings.strict import structure

UNIT = in_range(0.0, 1.0)


def _networks(value: Mapping[str, object] | ActorCriticConfig | None) -> ActorCriticConfig:
    return value if isinstance(value, ActorCriticConfig) else structure(value or {}, ActorCriticConfig)


@attrs.frozen
class ClippedPolicyConfig(AgentConfig):
    """The constructor parameters of PPO, in order, with the defaults of PPO."""

    learning_rate: Schedule = attrs.field(
        default=Constant(3e-4), converter=as_schedule, validator=finite_schedule(), metadata=glossary.LEARNING_RATE
    )
    n_steps: int = attrs.field(default=2048, validator=in_range(1), metadata=glossary.N_STEPS)
    batch_size: int | None = attrs.field(default=64, validator=in_range(1), metadata=glossary.MINIBATCH_SIZE)
    n_epochs: int = attrs.field(default=10, validator=in_range(1), metadata=glossary.N_EPOCHS)
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT, metadata=glossary.GAE_LAMBDA)
    clip_range: Schedule = attrs.field(
        default=Constant(0.2), converter=as_schedule, validator=finite_schedule(), metadata=glossary.CLIP_RANGE
    )
    clip_range_vf: Schedule | None = attrs.field(
        default=None,
        converter=optional_schedule,
        validator=attrs.validators.optional(finite_schedule()),
        metadata=glossary.CLIP_RANGE_VF,
    )
    normalize_advantage: bool = attrs.field(default=True, metadata=glossary.NORMALIZE_ADVANTAGE)
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0), metadata=glossary.ENT_COEF)
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=glossary.VF_COEF)
    max_grad_norm: float = attrs.field(
        default=0.5, validator=in_range(0, open_low=True), metadata=glossary.MAX_GRAD_NORM
    )
    target_kl: float | None = attrs.field(
        default=None, validator=in_range(0, open_low=True), metadata=glossary.EARLY_STOP_KL
    )
    policy_kwargs: ActorCriticConfig = attrs.field(
        factory=ActorCriticConfig, converter=_networks, kw_only=True, metadata=glossary.POLICY_KWARGS
    )


@attrs.frozen
class ClippedPolicySdeConfig(ClippedPolicyConfig):
    """The constructor parameters of PPO with state-dependent exploration (gSDE), in the documented order.

    The parameters of gSDE come before `target_kl`.
    """

    use_sde: bool = attrs.field(default=False, metadata=glossary.USE_SDE)
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1), metadata=glossary.SDE_SAMPLE_FREQ)
    # declared again, so that it comes after `sde_sample_freq`
    target_kl: float | None = attrs.field(
        default=None, validator=in_range(0, open_low=True), metadata=glossary.EARLY_STOP_KL
    )
