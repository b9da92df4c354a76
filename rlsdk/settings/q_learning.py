"""Hyper-parameters of value methods for discrete actions: DQN and algorithms derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.fields import described, in_range
from rlsdk.settings.frequency import TrainFrequency
from rlsdk.settings.inherited import defaults
from rlsdk.settings.networks import NetworkConfig, arguments_of_class, as_module_class, as_net_arch
from rlsdk.settings.off_policy import UNIT, OffPolicyConfig
from rlsdk.settings.schedules import Constant
from rlsdk.settings.strict import structure


@attrs.frozen(kw_only=True)
class DiscreteValueConfig(NetworkConfig):
    """`policy_kwargs` of value methods for discrete actions."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described("hidden layer widths", source="none = [64, 64], [] after NatureCNN"),
    )
    dueling: bool = attrs.field(
        default=False,
        metadata=described(
            "dueling network: a value of the observation plus an advantage of each action", source="arXiv:1511.06581"
        ),
    )
    network_class: Any = attrs.field(default=None, converter=as_module_class, metadata=glossary.NETWORK_CLASS)
    network_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )


def _networks(value: Mapping[str, object] | DiscreteValueConfig | None) -> DiscreteValueConfig:
    return value if isinstance(value, DiscreteValueConfig) else structure(value or {}, DiscreteValueConfig)


@attrs.frozen(
    field_transformer=defaults(
        learning_rate=Constant(1e-4), batch_size=32, tau=1.0, train_freq=TrainFrequency(4, "step")
    )
)
class QLearningConfig(OffPolicyConfig):
    """The constructor parameters of Q-learning with a target network, in order, with the defaults of DQN."""

    LIVE: ClassVar[tuple[str, ...]] = (
        *OffPolicyConfig.LIVE,
        "target_update_interval",
        "exploration_fraction",
        "exploration_initial_eps",
        "exploration_final_eps",
        "max_grad_norm",
        "double_q",
    )

    target_update_interval: int = attrs.field(
        default=10_000,
        validator=in_range(1),
        metadata=described("environment steps between updates of the target network", unit="env steps"),
    )
    exploration_fraction: float = attrs.field(
        default=0.1,
        validator=UNIT,
        metadata=described(
            "share of the training in which epsilon falls from exploration_initial_eps to exploration_final_eps"
        ),
    )
    exploration_initial_eps: float = attrs.field(
        default=1.0, validator=UNIT, metadata=described("initial epsilon, the probability of a random action")
    )
    exploration_final_eps: float = attrs.field(
        default=0.05, validator=UNIT, metadata=described("final epsilon, the probability of a random action")
    )
    max_grad_norm: float | None = attrs.field(
        default=10.0, validator=in_range(0, open_low=True), metadata=glossary.MAX_GRAD_NORM
    )
    double_q: bool = attrs.field(
        default=False,
        kw_only=True,
        metadata=described(
            "double Q-learning: the online network selects the next action, the target network gives its value",
            source="arXiv:1509.06461",
        ),
    )

    policy_kwargs: DiscreteValueConfig = attrs.field(
        factory=DiscreteValueConfig, converter=_networks, kw_only=True, metadata=glossary.POLICY_KWARGS
    )

    def exploration_rate(self, progress: float) -> float:
        """Return epsilon after the share `progress` of the training: linear from the first to the last value, then constant."""
        done = 1.0 if self.exploration_fraction == 0.0 else min(1.0, progress / self.exploration_fraction)
        return self.exploration_initial_eps + done * (self.exploration_final_eps - self.exploration_initial_eps)
