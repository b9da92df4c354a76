"""The hyper-parameters of ACKTR. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    AgentConfig,
    Linear,
    RecurrentConfig,
    Schedule,
    as_optimizer,
    as_schedule,
    described,
    finite_schedule,
    in_range,
    structure,
)

SHARE, POSITIVE = in_range(0.0, 1.0), in_range(0, open_low=True)


@attrs.frozen(kw_only=True)
class ACKTRPolicyConfig(RecurrentConfig):
    """The settings of networks, `policy_kwargs`, of ACKTR. Settings of the memory apply to recurrent policies only."""

    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_optimizer),
        metadata=described(
            "torch optimizer, which receives natural gradients: a name, a class or a function; none = SGD with momentum"
        ),
    )


def _policy_settings(value: Mapping[str, object] | ACKTRPolicyConfig | None) -> ACKTRPolicyConfig:
    return structure(value or {}, ACKTRPolicyConfig)


@attrs.frozen
class ACKTRConfig(AgentConfig):
    """The constructor parameters of ACKTR, in order."""

    gamma: float = attrs.field(default=0.99, validator=SHARE)
    n_steps: int = attrs.field(default=20, validator=in_range(1))
    ent_coef: float = attrs.field(default=0.01, validator=in_range(0))
    vf_coef: float = attrs.field(default=0.25, validator=in_range(0))
    vf_fisher_coef: float = attrs.field(
        default=1.0,
        validator=in_range(0),
        metadata=described(
            "weight c of the value's loss c (V - sample)^2 in the Fisher information, to which it contributes in"
            " proportion to 4 c^2; 0.5 = as in the paper"
        ),
    )
    learning_rate: Schedule = attrs.field(
        default=Linear(0.25),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=described(
            "learning rate along the natural gradient, before kfac_clip shortens steps; may be a schedule",
            tune=(0.01, 1.0),
        ),
    )
    max_grad_norm: float = attrs.field(
        default=0.5,
        validator=POSITIVE,
        metadata=described(
            "maximum global norm of gradients in the first cold_iter updates; larger gradients are scaled down to it"
        ),
    )
    kfac_clip: float = attrs.field(
        default=0.001,
        validator=POSITIVE,
        metadata=described(
            "bound of an update's squared length in the Fisher metric, which is about twice its KL divergence"
        ),
    )
    kfac_update: int = attrs.field(
        default=1,
        validator=in_range(1),
        metadata=described("updates between eigendecompositions of the Kronecker factors", unit="updates"),
    )
    gae_lambda: float | None = attrs.field(
        default=None,
        validator=SHARE,
        metadata=described(
            "lambda of generalized advantage estimation: lower = more bias, less variance; none = 1, the n-step returns"
        ),
    )
    normalize_advantage: bool | None = attrs.field(
        default=None,
        kw_only=True,
        metadata=described("normalize advantages over the rollout; none = only for Box actions", examples=(True,)),
    )
    momentum: float = attrs.field(
        default=0.9,
        kw_only=True,
        validator=in_range(0, 1, open_high=True),
        metadata=described(
            "momentum of SGD, whose learning rate is learning_rate * (1 - momentum); other optimizers use"
            " optimizer_kwargs instead"
        ),
    )
    damping: float = attrs.field(
        default=0.01,
        kw_only=True,
        validator=POSITIVE,
        metadata=described("damping: number added to the Fisher information before it is inverted", tune=(0.001, 0.1)),
    )
    factored_damping: bool = attrs.field(
        default=False,
        kw_only=True,
        metadata=described(
            "split the damping between both Kronecker factors of a layer by their traces; false = add it to their"
            " product",
            source="arXiv:1503.05671, section 6.3",
        ),
    )
    stats_decay: float = attrs.field(
        default=0.99,
        kw_only=True,
        validator=in_range(0, 1, open_high=True),
        metadata=described("decay rate, per update, of the running averages of the Fisher information"),
    )
    cold_iter: int = attrs.field(
        default=10,
        kw_only=True,
        validator=in_range(0),
        metadata=described(
            "number of first updates, which use plain gradients while the Fisher information is estimated"
        ),
    )
    policy_kwargs: ACKTRPolicyConfig = attrs.field(factory=ACKTRPolicyConfig, converter=_policy_settings, kw_only=True)
