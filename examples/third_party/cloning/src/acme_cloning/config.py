"""The hyper-parameters. The constructor, `rlsdk info`, `--set` and settings files read them from here."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range
from rlsdk_datasets import Dataset


@attrs.frozen
class CloningConfig(AgentConfig):
    """The constructor parameters of behavior cloning, in order."""

    dataset: Dataset | None = attrs.field(
        default=None, metadata=described("data set of recorded episodes to learn from: a path")
    )
    learning_rate: float = attrs.field(
        default=1e-3,
        validator=in_range(0, open_low=True),
        metadata=described("learning rate of Adam", tune=(1e-4, 1e-2)),
    )
    batch_size: int = attrs.field(default=256, validator=in_range(1))
    hidden: int = attrs.field(default=64, validator=in_range(1), metadata=described("units of each hidden layer"))
    held_out: float = attrs.field(
        default=0.0,
        validator=in_range(0, 1, open_high=True),
        metadata=described(
            "share of the episodes that is not used for training, but for the metric train/held_out_loss"
        ),
    )
