"""The hyper-parameters of IQL. Constructor, help, CLI, settings files and docs are derived from these classes."""

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
    described,
    finite_schedule,
    in_range,
    needs,
    structure,
)
from rlsdk_datasets import Dataset

PAPER = "arXiv:2110.06169"
UNIT = in_range(0, 1)


@attrs.frozen(kw_only=True)
class IQLNetworkConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of IQL."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None, converter=as_net_arch, metadata={"source": "none = [256, 256] for pi, vf and qf"}
    )
    n_critics: int = attrs.field(
        default=2, validator=in_range(1, 512), metadata=described("number of critics", tune=(1, 5))
    )


def _networks(value: Mapping[str, object] | IQLNetworkConfig | None) -> IQLNetworkConfig:
    return structure(value or {}, IQLNetworkConfig)


@attrs.frozen
class IQLConfig(AgentConfig):
    """The constructor parameters of IQL, in order."""

    dataset: Dataset | None = attrs.field(
        default=None,
        metadata=described("data set of recorded episodes to learn from: a path", source="no default: must be given"),
    )
    expectile: float = attrs.field(
        default=0.7,
        validator=in_range(0, 1, open_low=True, open_high=True),
        metadata=described(
            "expectile of the values of recorded actions that V predicts: 0.5 = their mean, near 1 = their maximum",
            tune=(0.5, 0.95),
            source=PAPER,
        ),
    )
    beta: float = attrs.field(
        default=3.0,
        validator=in_range(0),
        metadata=described(
            "inverse temperature: recorded actions have the weight exp(beta * advantage); 0 = behavior cloning",
            tune=(0.5, 20.0),
            source=PAPER,
        ),
    )
    max_weight: float = attrs.field(
        default=100.0,
        validator=in_range(0, open_low=True),
        metadata=described("upper bound of the weights of recorded actions", source=PAPER),
    )
    learning_rate: Schedule = attrs.field(default=Constant(3e-4), converter=as_schedule, validator=finite_schedule())
    actor_learning_rate: Schedule | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_schedule),
        validator=attrs.validators.optional(finite_schedule()),
        metadata=described(
            "learning rate of the policy; none = learning_rate, `rlsdk_iql.schedules.cosine(3e-4)` = the schedule of the paper",
            examples=(1e-3,),
        ),
    )
    batch_size: int = attrs.field(default=256, validator=in_range(1))
    tau: float = attrs.field(default=0.005, validator=UNIT)
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    log_std_min: float = attrs.field(
        default=-5.0,
        validator=in_range(-20, 2),
        metadata=described(
            "lower bound of the log standard deviation of Box actions, which are scaled to [-1, 1]", source=PAPER
        ),
    )
    fine_tuning: bool = attrs.field(
        default=False,
        metadata=described(
            "learn in an environment, from its steps and the recorded ones together; learn then counts environment steps"
        ),
    )
    buffer_size: int = attrs.field(
        default=1_000_000,
        validator=in_range(1),
        metadata=described("fine-tuning: number of collected transitions that are stored", unit="transitions")
        | needs("fine_tuning"),
    )
    gradient_steps: int = attrs.field(
        default=1,
        validator=in_range(-1),
        metadata=described(
            "fine-tuning: updates after each step of all environments; -1 = one for each environment step",
            unit="updates",
        )
        | needs("fine_tuning"),
    )
    policy_kwargs: IQLNetworkConfig = attrs.field(factory=IQLNetworkConfig, converter=_networks, kw_only=True)
