"""Protocols of optional fields of `BuildContext`: rewards for other goals, stacked frames, normalisation."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from rlsdk.spaces import Space

NestedT = TypeVar("NestedT")


class GoalRewards(Protocol):
    """Computes the rewards that a goal environment would give for other goals than the desired goal of the episode."""

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return (reward float32 [M], terminated bool [M] or None) for `achieved` [M, ..] when the goal is `goal` [M, ..]."""
        ...


class Frames(Protocol):
    """Stacks frames: the last `count` observations of the environment, each from the space `single`, become one observation."""

    single: Space
    count: int

    def newest(self, features: NestedT) -> NestedT:
        """Return the last frame [.., *single] of stacked observations [.., *stacked]."""
        ...

    def joined(self, frames: NestedT) -> NestedT:
        """Stack frames [N, count, *single], the newest last, into observations [N, *stacked]."""
        ...


class Conversion(Protocol):
    """A function of tensors, or of mappings, tuples and records of tensors, that returns a value of the same structure."""

    def __call__(self, values: NestedT, /) -> NestedT: ...
