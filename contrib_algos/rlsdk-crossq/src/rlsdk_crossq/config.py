"""The hyper-parameters of CrossQ. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    Constant,
    Default,
    SoftActorCriticConfig,
    SoftActorCriticNetworkConfig,
    as_net_arch,
    defaults,
    described,
    in_range,
    positional_after,
    structure,
    without,
)

PAPER = "arXiv:1902.05605"
WIDTHS: Mapping[str, tuple[int, ...]] = {"pi": (256, 256), "qf": (1024, 1024)}
"""The hidden layers without `net_arch`. Wide critics, because batch normalization lets them learn without overfitting."""
BETAS = (0.5, 0.999)
"""Adam's decay rates in the paper. The shorter memory of the gradient replaces the delay of a target network."""


def _widths(value: object) -> dict[str, tuple[int, ...]] | None:
    return as_net_arch(WIDTHS if value is None else value)


@attrs.frozen(kw_only=True)
class CrossQPolicyConfig(SoftActorCriticNetworkConfig):
    """The settings of networks, `policy_kwargs`, of CrossQ."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=_widths,
        metadata=described("hidden layer widths", source="none = [256, 256] for pi, [1024, 1024] for qf"),
    )
    batch_norm: bool = attrs.field(
        default=True,
        metadata=described("batch renormalization before every linear layer of actor and critics", source=PAPER),
    )
    batch_norm_momentum: float = attrs.field(
        default=0.01,
        validator=in_range(0, 1, open_low=True),
        metadata=described("weight of a new batch in the running statistics", source=PAPER, tune=(0.001, 0.1)),
    )
    batch_norm_eps: float = attrs.field(
        default=0.001,
        validator=in_range(0, open_low=True),
        metadata=described("number added to variances before the division by their root", source=PAPER),
    )
    renorm_warmup_steps: int = attrs.field(
        default=100_000,
        validator=in_range(0),
        metadata=described(
            "updates of a network with plain batch normalization, before running statistics correct it", unit="updates"
        ),
    )

    @property
    def optimizer_arguments(self) -> Mapping[str, object] | None:
        """Further arguments of the optimizers of actor and critics: `optimizer_kwargs`, or the decay rates of the paper."""
        if self.optimizer_kwargs is not None or self.optimizer_class not in ("adam", "adamw", None):
            return self.optimizer_kwargs
        return {"betas": BETAS}


def _policy_settings(value: Mapping[str, object] | CrossQPolicyConfig | None) -> CrossQPolicyConfig:
    return structure(value or {}, CrossQPolicyConfig)


def _fields(kind: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """The fields of SAC without those of target networks, in the order of sb3-contrib."""
    for change in (
        without("tau", "target_update_interval"),
        defaults(learning_rate=Default(Constant(1e-3), PAPER)),
        positional_after(n_steps="optimize_memory_usage", policy_delay="target_entropy"),
    ):
        fields = change(kind, fields)
    return fields


@attrs.frozen(field_transformer=_fields)
class CrossQConfig(SoftActorCriticConfig):
    """The constructor parameters of CrossQ, in order."""

    policy_delay: int = attrs.field(
        default=3,
        kw_only=True,
        validator=in_range(1),
        metadata=described("updates of the critics per update of actor and ent_coef", source=PAPER, tune=(1, 4)),
    )
    policy_kwargs: CrossQPolicyConfig = attrs.field(
        factory=CrossQPolicyConfig, converter=_policy_settings, kw_only=True
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.policy_kwargs.batch_norm and self.batch_size < 2:
            raise ValueError(
                f"batch_size = {self.batch_size}: batch normalization needs the variance of at least 2 rows; give 2 or"
                " more, or policy_kwargs.batch_norm = false"
            )
