"""The hyper-parameters of CQL. Constructor, help, CLI, settings files and docs are derived from these classes."""

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
    structure,
)
from rlsdk_datasets import Dataset

PAPER = "arXiv:2006.04779"
SAC = "arXiv:1812.05905"
UNIT = in_range(0, 1)


@attrs.frozen(kw_only=True)
class CQLNetworkConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of CQL."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None, converter=as_net_arch, metadata={"source": "none = [256, 256] for pi and qf"}
    )
    n_critics: int = attrs.field(
        default=2, validator=in_range(1, 512), metadata=described("Box actions: number of critics", tune=(1, 5))
    )


def _networks(value: Mapping[str, object] | CQLNetworkConfig | None) -> CQLNetworkConfig:
    return structure(value or {}, CQLNetworkConfig)


@attrs.frozen
class CQLConfig(AgentConfig):
    """The constructor parameters of CQL, in order. Settings of the actor and of sampled actions apply to Box actions only."""

    dataset: Dataset | None = attrs.field(
        default=None,
        metadata=described("data set of recorded episodes to learn from: a path", source="no default: must be given"),
    )
    alpha: float = attrs.field(
        default=5.0,
        validator=in_range(0),
        metadata=described(
            "weight of the penalty: how far values of other actions exceed those of recorded ones; 0 = none; with"
            " threshold, its first value",
            tune=(0.1, 10.0),
            source=PAPER,
        ),
    )
    threshold: float | None = attrs.field(
        default=None,
        validator=in_range(),
        metadata=described(
            "alpha is learned so that the penalty approaches this number; none = alpha is constant", examples=(0.5,)
        ),
    )
    n_actions: int = attrs.field(
        default=10,
        validator=in_range(1, 1000),
        metadata=described(
            "Box actions: sampled actions per observation that estimate the penalty, of each of three kinds",
            tune=(4, 20),
            source=PAPER,
        ),
    )
    cloning_updates: int = attrs.field(
        default=0,
        validator=in_range(0),
        metadata=described(
            "Box actions: first updates in which the actor imitates recorded actions and does not follow the critics",
            unit="updates",
        ),
    )
    learning_rate: Schedule = attrs.field(default=Constant(3e-4), converter=as_schedule, validator=finite_schedule())
    actor_learning_rate: Schedule | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_schedule),
        validator=attrs.validators.optional(finite_schedule()),
        metadata=described(
            "Box actions: learning rate of the actor and of ent_coef; none = learning_rate", examples=(1e-3,)
        ),
    )
    batch_size: int = attrs.field(default=256, validator=in_range(1))
    tau: float = attrs.field(default=0.005, validator=UNIT)
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    ent_coef: str | float = attrs.field(
        default="auto",
        metadata=described(
            'Box actions: weight of the entropy bonus: "auto" = learned, starting at 1; "auto_0.1" = learned, starting at'
            " 0.1; a number = constant",
            examples=("auto_0.1", 0.3),
            source=SAC,
        ),
    )
    target_entropy: str | float = attrs.field(
        default="auto",
        metadata=described(
            'Box actions: entropy that a learned ent_coef aims for; "auto" = minus the number of action dimensions',
            examples=(-0.5,),
            source=SAC,
        ),
    )
    backup_entropy: bool = attrs.field(
        default=False,
        metadata=described("Box actions: targets of the critics contain the entropy bonus, as in SAC", source=PAPER),
    )
    double_q: bool = attrs.field(
        default=True,
        metadata=described(
            "choices: double Q-learning: the online network selects the next action, the target network gives its value",
            source="arXiv:1509.06461",
        ),
    )
    policy_kwargs: CQLNetworkConfig = attrs.field(factory=CQLNetworkConfig, converter=_networks, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.threshold is not None and self.alpha == 0.0:
            raise ValueError("alpha = 0 cannot be learned, as its first value is 0; give alpha > 0, or no threshold")
        wanted = self.target_entropy
        if wanted != "auto" and (isinstance(wanted, str) or not abs(wanted) <= 1e18):
            raise ValueError(f'target_entropy = {wanted!r} must be "auto" or a finite number up to 1e+18')
