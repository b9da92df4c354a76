"""The hyper-parameters of ACER. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    AgentConfig,
    Linear,
    NetworkConfig,
    Schedule,
    as_activation,
    as_net_arch,
    as_optimizer,
    as_schedule,
    described,
    finite_schedule,
    in_range,
    structure,
)

UNIT = in_range(0.0, 1.0)


@attrs.frozen(kw_only=True)
class ACERPolicyConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of ACER. Settings of the memory apply to recurrent policies only."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata={"source": "none = [64, 64] for pi and qf, [] after NatureCNN"},
    )
    activation_fn: str | Callable[..., Any] = attrs.field(
        default="tanh",
        converter=as_activation,
        metadata=described("activation function between hidden layers", examples=("elu",)),
    )
    ortho_init: bool = attrs.field(default=True, metadata=described("orthogonal initialization of weights"))
    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_optimizer),
        metadata=described("torch optimizer; none = RMSprop with rprop_alpha and rprop_epsilon", examples=("sgd",)),
    )
    lstm_hidden_size: int = attrs.field(default=256, validator=in_range(1, 2**20))
    n_lstm_layers: int = attrs.field(default=1, validator=in_range(1, 16))
    lstm_kwargs: Mapping[str, object] | None = None


def _networks(value: Mapping[str, object] | ACERPolicyConfig | None) -> ACERPolicyConfig:
    return structure(value or {}, ACERPolicyConfig)


@attrs.frozen
class ACERConfig(AgentConfig):
    """The constructor parameters of ACER, in order."""

    gamma: float = attrs.field(default=0.99, validator=UNIT)
    n_steps: int = attrs.field(default=20, validator=in_range(1))
    q_coef: float = attrs.field(
        default=0.5, validator=in_range(0), metadata=described("weight of the loss of Q(s, a)", tune=(0.1, 1))
    )
    ent_coef: float = attrs.field(
        default=0.01,
        validator=in_range(0),
        metadata=described("weight of the entropy bonus, the mean entropy over the states of a batch", tune=(0, 0.1)),
    )
    max_grad_norm: float = attrs.field(default=10.0, validator=in_range(0, open_low=True))
    learning_rate: Schedule = attrs.field(default=Linear(7e-4), converter=as_schedule, validator=finite_schedule())
    rprop_alpha: float = attrs.field(
        default=0.99, validator=UNIT, metadata=described("RMSprop: decay rate of the mean squared gradient")
    )
    rprop_epsilon: float = attrs.field(
        default=1e-5,
        validator=in_range(0, open_low=True),
        metadata=described("RMSprop: number added to the root of the mean squared gradient"),
    )
    buffer_size: int = attrs.field(default=50_000, validator=in_range(1))
    replay_ratio: float = attrs.field(
        default=4.0,
        validator=in_range(0, 1000),
        metadata=described(
            "mean of the Poisson distribution of the number of replay updates after each rollout", tune=(0, 8)
        ),
    )
    replay_start: int = attrs.field(
        default=1000,
        validator=in_range(0),
        metadata=described(
            "transitions in the replay buffer, over all environments, before replay updates start", unit="transitions"
        ),
    )
    correction_term: float = attrs.field(
        default=10.0,
        validator=in_range(0, open_low=True),
        metadata=described(
            "bound of the importance weights; a correction over all actions replaces the truncated part", tune=(1, 20)
        ),
    )
    trust_region: bool = attrs.field(
        default=True,
        metadata=described("trust region: limit how far an update moves the policy away from the average policy"),
    )
    alpha: float = attrs.field(
        default=0.99, validator=UNIT, metadata=described("decay rate per update of the moving average of the policy")
    )
    delta: float = attrs.field(
        default=1.0,
        validator=in_range(0),
        metadata=described(
            "trust region: bound of the rate at which an update increases the KL divergence from the average policy",
            tune=(0.1, 2),
        ),
    )
    policy_kwargs: ACERPolicyConfig = attrs.field(factory=ACERPolicyConfig, converter=_networks, kw_only=True)
