"""The hyper-parameters of TD3+BC. Constructor, help, CLI, settings files and docs are derived from this class."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import (
    AgentConfig,
    Constant,
    Default,
    DeterministicActorCriticNetworkConfig,
    Normalization,
    Schedule,
    as_schedule,
    defaults,
    described,
    in_range,
    structure,
)
from rlsdk_datasets import Dataset

PAPER = "arXiv:2106.06860"
TD3 = "arXiv:1802.09477"
HIDDEN = {"pi": (256, 256), "qf": (256, 256)}
STATES_ONLY = Normalization(norm_reward=False, clip_obs=1e6, epsilon=1e-6, where_possible=True)
"""Observations are normalized to mean 0 and deviation 1 over the data set. A deviation counts as at least 1e-3 (section 5)."""


@attrs.frozen(
    kw_only=True, field_transformer=defaults(net_arch=Default(None, source="none = [256, 256] for pi and qf"))
)
class TD3BCNetworkConfig(DeterministicActorCriticNetworkConfig):
    """The settings of networks, `policy_kwargs`, of TD3+BC."""


def as_networks(value: Mapping[str, object] | DeterministicActorCriticNetworkConfig | None) -> TD3BCNetworkConfig:
    """Make network settings from a table. Without `net_arch`, actor and critics have two hidden layers of 256."""
    table = (
        attrs.asdict(value, recurse=False) if isinstance(value, DeterministicActorCriticNetworkConfig) else value or {}
    )
    networks = structure(table, TD3BCNetworkConfig)
    return networks if networks.net_arch is not None else attrs.evolve(networks, net_arch=HIDDEN)


@attrs.frozen(field_transformer=defaults(normalize=STATES_ONLY))
class TD3BCConfig(AgentConfig):
    """The constructor parameters of TD3+BC, in order."""

    dataset: Dataset | None = attrs.field(
        default=None,
        metadata=described("data set of recorded episodes to learn from: a path", source="no default: must be given"),
    )
    alpha: float = attrs.field(
        default=2.5,
        validator=in_range(0),
        metadata=described(
            "weight of the critic's value in the actor's loss, compared with the error from recorded actions; 0 ="
            " behavior cloning",
            tune=(0.5, 10.0),
            source=PAPER,
        ),
    )
    learning_rate: Schedule = attrs.field(default=Constant(3e-4), converter=as_schedule)
    batch_size: int = attrs.field(default=256, validator=in_range(1))
    tau: float = attrs.field(default=0.005, validator=in_range(0, 1))
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1))
    policy_delay: int = attrs.field(
        default=2,
        validator=in_range(1),
        metadata=described("updates of the critics per update of the actor and the target networks", source=TD3),
    )
    target_policy_noise: float = attrs.field(
        default=0.2,
        validator=in_range(0),
        metadata=described(
            "standard deviation of the noise on the target actor's actions, which are scaled to [-1, 1]", source=TD3
        ),
    )
    target_noise_clip: float = attrs.field(
        default=0.5,
        validator=in_range(0),
        metadata=described("bound of the noise on the target actor's actions, which are scaled to [-1, 1]", source=TD3),
    )
    policy_kwargs: TD3BCNetworkConfig = attrs.field(factory=TD3BCNetworkConfig, converter=as_networks, kw_only=True)

    @property
    def action_noise(self) -> None:
        """None: no environment steps are collected, so no exploration noise is needed."""
        return None
