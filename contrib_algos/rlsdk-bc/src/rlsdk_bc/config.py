"""The hyper-parameters of behavior cloning. Constructor, help, CLI, settings files and docs are derived from this class."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import (
    AgentConfig,
    Constant,
    RecurrentConfig,
    Schedule,
    as_schedule,
    choice,
    described,
    finite_schedule,
    in_range,
    structure,
)
from rlsdk_datasets import Dataset


def _networks(value: Mapping[str, object] | RecurrentConfig | None) -> RecurrentConfig:
    return structure(value or {}, RecurrentConfig)


@attrs.frozen
class BCConfig(AgentConfig):
    """The constructor parameters of behavior cloning, in order. Settings of the memory apply to recurrent policies only."""

    dataset: Dataset | None = attrs.field(
        default=None, metadata=described("data set of recorded episodes to learn from: a path")
    )
    learning_rate: Schedule = attrs.field(default=Constant(1e-3), converter=as_schedule, validator=finite_schedule())
    batch_size: int = attrs.field(
        default=32,
        validator=in_range(1),
        metadata=described("steps per update; for recurrent policies, sequences per update", tune=(16, 256)),
    )
    loss: str = attrs.field(
        default="likelihood",
        validator=choice("likelihood", "squared_error"),
        metadata=described(
            "likelihood = -log pi(a|s); squared_error = squared error of the mean of Box actions, and the likelihood"
            " of other actions",
            examples=("squared_error",),
        ),
    )
    ent_coef: float = attrs.field(default=1e-3, validator=in_range(0))
    l2_coef: float = attrs.field(
        default=0.0,
        validator=in_range(0),
        metadata=described("weight of the L2 penalty: half the sum of the actor's squared parameters"),
    )
    vf_coef: float = attrs.field(
        default=0.5,
        validator=in_range(0),
        metadata=described(
            "weight of the squared error between values and recorded returns; 0 = values are not trained"
        ),
    )
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1))
    log_std_min: float = attrs.field(
        default=-2.0,
        validator=in_range(-20, 10),
        metadata=described(
            "lower bound of the log standard deviation of Box actions; with noise-free data it would otherwise"
            " decrease without limit"
        ),
    )
    held_out: float = attrs.field(
        default=0.0,
        validator=in_range(0, 1, open_high=True),
        metadata=described(
            "share of the episodes that is not used for training, but for the metric train/held_out_loss"
        ),
    )
    patience: int | None = attrs.field(
        default=None,
        validator=in_range(1),
        metadata=described(
            "stop after this number of updates without a lower train/held_out_loss, and restore the weights with the"
            " lowest; none = never",
            unit="updates",
        ),
    )
    sequence_length: int = attrs.field(
        default=64,
        validator=in_range(1),
        metadata=described("length of the sequences that recurrent policies learn from", unit="steps"),
    )
    policy_kwargs: RecurrentConfig = attrs.field(factory=RecurrentConfig, converter=_networks, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.patience is not None and not self.held_out:
            raise ValueError(
                f"patience = {self.patience} needs held_out above 0: it waits for the loss of held-out episodes"
            )
