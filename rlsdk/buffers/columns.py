"""The columns of a replay buffer: what a row holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rlsdk.buffers.named_extras import Names
from rlsdk.records import Features

NAMED = ("extras", "info")
"""Columns that are mappings of names to tensors; their names are known with the first row."""
MEANINGLESS = ("action", "reward", "discount", "valid", "terminated", "truncated")
"""Columns of the row that only holds the newest observation."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a memory besides observation, action, reward, discount and `valid`."""

    extras: Names = ()
    """Names of the policy's extras, or `ALL`."""
    like: Mapping[str, Tensor] = field(default_factory=dict)
    """An example of each extra [..], so that the memory's size is known before the first row."""
    ends: bool = False
    """Whether `terminated` and `truncated` are stored."""
    carry: Features = None
    """An example of the collecting policy's carry, [B, ..]; one is stored at the first row of each rollout. None: no carry."""


PLAIN = Columns()
"""No further columns."""
