"""The names and options of the columns that the rows of a replay buffer have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rlsdk.buffers.named_extras import Names
from rlsdk.records import Features

NAMED = ("extras", "info")
"""Columns that are mappings of names to tensors. The first stored row determines the names."""
MEANINGLESS = ("action", "reward", "discount", "valid", "terminated", "truncated")
"""Columns without a meaning in the row that holds only the newest observation."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a replay buffer in addition to observation, action, reward, discount and `valid`."""

    extras: Names = ()
    """The names of the policy's extras that are stored, or `ALL`."""
    like: Mapping[str, Tensor] = field(default_factory=dict)
    """An example of each extra [..], so that the size of the buffer is known before the first row."""
    ends: bool = False
    """Whether `terminated` and `truncated` are stored."""
    carry: Features = None
    """An example of the collecting policy's carry, [B, ..]. One is stored at the first row of each rollout. None: no carry."""


PLAIN = Columns()
"""The options of a buffer without additional columns."""
