"""What a `BuildContext` holds besides spaces and numbers: rewards of goals, stacked frames, normalisation."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from rlsdk.spaces import Space

NestedT = TypeVar("NestedT")


class GoalRewards(Protocol):
    """The rewards of a goal environment for other goals than its own."""

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(reward float32 [M], terminated bool [M] or None) where `achieved` [M, ..] was reached and `goal` [M, ..] wanted."""
        ...


class Frames(Protocol):
    """How observations of the algorithm are put together from the environment's last ones."""

    single: Space
    count: int

    def newest(self, features: NestedT) -> NestedT:
        """The last frame [.., *single] of stacked observations [.., *stacked]."""
        ...

    def joined(self, frames: NestedT) -> NestedT:
        """Frames [N, count, *single], the newest last, as stacked observations [N, *stacked]."""
        ...


class Conversion(Protocol):
    """A function of tensors, or of mappings, tuples and records of tensors, that gives the same kind of value."""

    def __call__(self, values: NestedT, /) -> NestedT: ...
