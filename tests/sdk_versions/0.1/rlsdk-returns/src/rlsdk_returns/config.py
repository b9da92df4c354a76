"""Every hyper-parameter of Returns, once. Constructor, help, command line, settings files and docs derive from this class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from rlsdk.settings import AgentConfig, finite_schedule, glossary, in_range, structure
from rlsdk.settings.actor_critic import ActorCriticConfig
from rlsdk.settings.schedules import Constant, Schedule, as_schedule

UNIT = in_range(0.0, 1.0)


def _networks(value: Mapping[str, Any] | ActorCriticConfig | None) -> ActorCriticConfig:
    return value if isinstance(value, ActorCriticConfig) else structure(value or {}, ActorCriticConfig)


@attrs.frozen
class ReturnsConfig(AgentConfig):
    """The constructor parameters of Returns, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(1e-3), converter=as_schedule, validator=finite_schedule(), metadata=glossary.LEARNING_RATE
    )
    n_steps: int = attrs.field(default=256, validator=in_range(1), metadata=glossary.N_STEPS)
    batch_size: int = attrs.field(default=64, validator=in_range(1), metadata=glossary.MINIBATCH_SIZE)
    n_epochs: int = attrs.field(default=1, validator=in_range(1), metadata=glossary.N_EPOCHS)
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT, metadata=glossary.GAE_LAMBDA)
    normalize_advantage: bool = attrs.field(default=True, metadata=glossary.NORMALIZE_ADVANTAGE)
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0), metadata=glossary.ENT_COEF)
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=glossary.VF_COEF)
    max_grad_norm: float = attrs.field(default=0.5, validator=in_range(0), metadata=glossary.MAX_GRAD_NORM)
    policy_kwargs: ActorCriticConfig = attrs.field(
        factory=ActorCriticConfig, converter=_networks, metadata=glossary.POLICY_KWARGS
    )
