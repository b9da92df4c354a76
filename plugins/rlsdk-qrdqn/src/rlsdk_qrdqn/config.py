"""The hyper-parameters of QRDQN. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    Constant,
    Default,
    DiscreteValueConfig,
    QLearningConfig,
    as_optimizer,
    defaults,
    described,
    in_range,
    structure,
)

PAPER = "arXiv:1710.10044"


@attrs.frozen(kw_only=True)
class QRDQNPolicyConfig(DiscreteValueConfig):
    """The settings of networks, `policy_kwargs`, of QRDQN."""

    n_quantiles: int = attrs.field(
        default=200,
        validator=in_range(1, 10_000),
        metadata=described("number of quantiles per action", source=PAPER, tune=(10, 200)),
    )
    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_optimizer),
        metadata=described(
            "torch optimizer: a name, a class or a function; none = Adam with the paper's epsilon, 0.01 / batch_size",
            examples=("sgd",),
        ),
    )


def _policy_settings(value: Mapping[str, object] | QRDQNPolicyConfig | None) -> QRDQNPolicyConfig:
    return structure(value or {}, QRDQNPolicyConfig)


@attrs.frozen(
    field_transformer=defaults(
        learning_rate=Default(Constant(5e-5), PAPER),
        batch_size=Default(32, PAPER),
        learning_starts=50_000,
        exploration_fraction=0.005,
        exploration_final_eps=0.01,
        max_grad_norm=None,
    )
)
class QRDQNConfig(QLearningConfig):
    """The constructor parameters of QRDQN, in order."""

    policy_kwargs: QRDQNPolicyConfig = attrs.field(factory=QRDQNPolicyConfig, converter=_policy_settings, kw_only=True)
