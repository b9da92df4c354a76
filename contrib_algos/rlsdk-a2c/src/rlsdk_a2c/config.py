"""The hyper-parameters of A2C. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    AgentConfig,
    Constant,
    RecurrentConfig,
    Schedule,
    as_optimizer,
    as_schedule,
    described,
    finite_schedule,
    in_range,
    structure,
)

UNIT = in_range(0.0, 1.0)


@attrs.frozen(kw_only=True)
class A2CPolicyConfig(RecurrentConfig):
    """The settings of networks, `policy_kwargs`, of A2C. Settings of the memory apply to recurrent policies only."""

    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_optimizer),
        metadata=described(
            "torch optimizer: a name, a class or a function; none = RMSprop, or Adam if use_rms_prop is false"
        ),
    )


def _networks(value: Mapping[str, object] | A2CPolicyConfig | None) -> A2CPolicyConfig:
    return structure(value or {}, A2CPolicyConfig)


@attrs.frozen
class A2CConfig(AgentConfig):
    """The constructor parameters of A2C, in order."""

    learning_rate: Schedule = attrs.field(default=Constant(7e-4), converter=as_schedule, validator=finite_schedule())
    n_steps: int = attrs.field(default=5, validator=in_range(1))
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    gae_lambda: float = attrs.field(default=1.0, validator=UNIT)
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0))
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0))
    max_grad_norm: float = attrs.field(default=0.5, validator=in_range(0, open_low=True))
    rms_prop_eps: float = attrs.field(
        default=1e-5,
        validator=in_range(0, open_low=True),
        metadata=described("RMSprop: number added to the root of the mean squared gradient"),
    )
    use_rms_prop: bool = attrs.field(
        default=True, metadata=described("use RMSprop if policy_kwargs gives no optimizer_class; false = Adam")
    )
    use_sde: bool = False
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1))
    normalize_advantage: bool = False
    policy_kwargs: A2CPolicyConfig = attrs.field(factory=A2CPolicyConfig, converter=_networks, kw_only=True)
