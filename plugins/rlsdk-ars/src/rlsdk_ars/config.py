"""The hyper-parameters of ARS. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    AgentConfig,
    Constant,
    NetworkConfig,
    Schedule,
    as_activation,
    as_net_arch,
    as_schedule,
    described,
    finite_schedule,
    in_range,
    structure,
)

PAPER = "arXiv:1803.07055"


@attrs.frozen(kw_only=True)
class ARSPolicyConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of ARS."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described("hidden layer widths of MlpPolicy", source="none = [64, 64]"),
    )
    activation_fn: str | Callable[..., Any] = attrs.field(
        default="relu",
        converter=as_activation,
        metadata=described("activation function between hidden layers: relu, tanh or identity", examples=("tanh",)),
    )
    with_bias: bool | None = attrs.field(
        default=None,
        metadata=described("whether layers have a bias; none = true for MlpPolicy, false for LinearPolicy"),
    )
    squash_output: bool = attrs.field(
        default=True, metadata=described("MlpPolicy: squash Box actions by tanh; false = clip them")
    )

    def __attrs_post_init__(self) -> None:
        if self.optimizer_class != "adam" or self.optimizer_kwargs:
            raise ValueError("optimizer_class, optimizer_kwargs: ARS has no optimizer; its step is learning_rate")


def _policy_settings(value: Mapping[str, object] | ARSPolicyConfig | None) -> ARSPolicyConfig:
    return structure(value or {}, ARSPolicyConfig)


@attrs.frozen
class ARSConfig(AgentConfig):
    """The constructor parameters of ARS, in order."""

    n_delta: int = attrs.field(
        default=8,
        validator=in_range(1),
        metadata=described("number of random directions per update", source=PAPER, tune=(1, 64)),
    )
    n_top: int | None = attrs.field(
        default=None,
        validator=in_range(1),
        metadata=described("number of best directions that an update uses; none = all"),
    )
    learning_rate: Schedule = attrs.field(default=Constant(0.02), converter=as_schedule, validator=finite_schedule())
    delta_std: Schedule = attrs.field(
        default=Constant(0.05),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=described(
            "standard deviation of the random changes of parameters; may be a schedule", tune=(0.005, 0.3)
        ),
    )
    zero_policy: bool = attrs.field(
        default=True, metadata=described("start with all parameters 0 instead of torch's initial parameters")
    )
    alive_bonus_offset: float = attrs.field(
        default=0.0,
        validator=in_range(),
        metadata=described(
            "number added to every reward in the scores of candidates (policies with changed parameters)"
        ),
    )
    n_eval_episodes: int = attrs.field(
        default=1, validator=in_range(1), metadata=described("episodes played with each candidate", unit="episodes")
    )
    policy_kwargs: ARSPolicyConfig = attrs.field(factory=ARSPolicyConfig, converter=_policy_settings, kw_only=True)
    device: str = attrs.field(
        default="cpu",
        kw_only=True,
        metadata=described(
            "torch device of the policy; candidates act in numpy, on the CPU", affects="device", examples=("auto",)
        ),
    )

    @property
    def top(self) -> int:
        """The number of best directions that a step uses."""
        return self.n_delta if self.n_top is None else self.n_top

    def __attrs_post_init__(self) -> None:
        if self.n_top is not None and self.n_top > self.n_delta:
            warnings.warn(
                f"n_top = {self.n_top} is more than n_delta = {self.n_delta}; all {self.n_delta} are followed",
                stacklevel=2,
            )
            object.__setattr__(self, "n_top", self.n_delta)
