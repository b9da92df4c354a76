"""The columns of a replay memory: what a row holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rlsdk.buffers.named_extras import Names
from rlsdk.records import Features

NAMED = ("extras", "info")
"""Columns that are mappings of names to tensors; what they hold is known when rows come."""
MEANINGLESS = ("action", "reward", "discount", "valid", "terminated", "truncated")
"""Columns of the row that only holds the newest observation."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a row holds besides observation, action, reward, discount and `valid`."""

    extras: Names = ()
    """Names of the policy's extras, or `ALL`."""
    like: Mapping[str, Tensor] = field(default_factory=dict)
    """An example of each extra of one row, so that the size is known before the first row."""
    ends: bool = False
    """`terminated` and `truncated`."""
    carry: Features = None
    """A carry [B, ..] of the collecting policy: one like it is stored at the first row of each rollout. None: no carry."""


PLAIN = Columns()
"""Nothing more."""
