"""The hyper-parameters of PQN. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import (
    AgentConfig,
    Constant,
    NetworkConfig,
    Schedule,
    as_net_arch,
    as_schedule,
    defaults,
    described,
    finite_schedule,
    in_range,
    structure,
)

PAPER = "arXiv:2407.04811"
UNIT = in_range(0.0, 1.0)


@attrs.frozen(kw_only=True, field_transformer=defaults(optimizer_class="radam"))
class PQNPolicyConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of PQN."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described("hidden layer widths", source="none = [128, 128], [] after NatureCNN"),
    )
    layer_norm: bool = attrs.field(
        default=True,
        metadata=described(
            "layer normalization before the activation of every hidden layer, also in NatureCNN", source=PAPER
        ),
    )


def _networks(value: Mapping[str, object] | PQNPolicyConfig | None) -> PQNPolicyConfig:
    return structure(value or {}, PQNPolicyConfig)


@attrs.frozen
class PQNConfig(AgentConfig):
    """The constructor parameters of PQN, in order."""

    learning_rate: Schedule = attrs.field(default=Constant(2.5e-4), converter=as_schedule, validator=finite_schedule())
    n_steps: int = attrs.field(default=64, validator=in_range(1))
    batch_size: int | None = attrs.field(
        default=128,
        validator=in_range(1),
        metadata=described("steps per minibatch; none = the whole rollout", unit="steps", tune=(32, 2048)),
    )
    n_epochs: int = attrs.field(default=4, validator=in_range(1))
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    q_lambda: float = attrs.field(
        default=0.95,
        validator=UNIT,
        metadata=described(
            "lambda of the returns: 0 = targets of one step, 1 = the rewards of the whole rollout",
            source=PAPER,
            tune=(0.0, 1.0),
        ),
    )
    exploration_fraction: float = attrs.field(
        default=0.2,
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
    max_grad_norm: float | None = attrs.field(default=10.0, validator=in_range(0, open_low=True))
    policy_kwargs: PQNPolicyConfig = attrs.field(factory=PQNPolicyConfig, converter=_networks, kw_only=True)

    def exploration_rate(self, progress: float) -> float:
        """Return epsilon after the share `progress` of the training: linear from the first to the last value, then constant."""
        # a fraction of 0 would divide by zero
        done = 1.0 if self.exploration_fraction == 0.0 else min(1.0, progress / self.exploration_fraction)
        return self.exploration_initial_eps + done * (self.exploration_final_eps - self.exploration_initial_eps)
