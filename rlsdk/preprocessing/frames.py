"""Several observations stacked into one, so that networks see motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlsdk.records import Features
from rlsdk.spaces import (
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    dtype_of,
    map_leaves,
    map_space,
    shape_of,
)

CarryT = TypeVar("CarryT")


@dataclass(frozen=True, slots=True, eq=False)
class FramesCarry(Generic[CarryT]):
    """The last observations of each environment, [B, count - 1, ..] per leaf, and the policy's carry."""

    frames: Features
    inner: CarryT


class FrameStacker:
    """The last `count` observations as one, the newest last. Before an episode has as many, its first one is repeated.

    Vectors are put end to end, images along their channels, a Discrete value becomes a MultiDiscrete.
    """

    def __init__(self, space: Space, count: int) -> None:
        self.single, self.count = space, count
        self.space = map_space(space, self._stacked)
        self.memory: Features = None
        """The last frames of the training environments; it lasts from one `learn` to the next."""

    def _stacked(self, leaf: Space) -> Space:
        count = self.count
        if isinstance(leaf, Discrete):
            return MultiDiscrete((leaf.n,) * count, (leaf.start,) * count)
        if isinstance(leaf, MultiDiscrete):
            return MultiDiscrete(leaf.nvec * count, leaf.start * count)
        if isinstance(leaf, MultiBinary):
            return MultiBinary((leaf.shape[0] * count, *leaf.shape[1:]))
        assert isinstance(leaf, Box)
        axis = _axis(leaf)
        low, high = (np.concatenate([np.atleast_1d(bound)] * count, axis) for bound in (leaf.low, leaf.high))
        return Box(low, high, low.shape, leaf.dtype)

    def newest(self, features: Features) -> Features:
        """The last frame [.., *single] of stacked observations."""

        def last(path: str, leaf: Space, values: Tensor) -> Tensor:
            shape = shape_of(leaf)
            if not shape:
                return values[..., -1]
            axis = _axis(leaf) if isinstance(leaf, Box) else 0
            size = shape[axis]
            place = axis - len(shape)
            return values.narrow(place, values.shape[place] - size, size)

        return map_leaves(self.single, last, features)

    def joined(self, frames: Features) -> Features:
        """Frames [N, count, *single], the newest last, as stacked observations."""
        return map_leaves(self.single, lambda path, leaf, rows: _joined(leaf, rows), frames)

    def initial(self, batch: int, device: str) -> Features:
        """The memory of `batch` environments whose episodes are about to start, [B, count - 1, ..] per leaf."""

        def zeros(path: str, leaf: Space) -> Tensor:
            return torch.zeros(
                batch, self.count - 1, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=device
            )

        return map_leaves(self.single, zeros)

    def push(self, frames: Features, features: Features, is_first: Tensor) -> tuple[Features, Features]:
        """(stacked observations, next memory) for the newest `features` [B, ..]; rows that are first forget."""
        history = map_leaves(self.single, lambda path, leaf, old, new: _history(old, new, is_first), frames, features)
        return self.joined(history), map_leaves(self.single, lambda path, leaf, rows: rows[:, 1:], history)


def _history(frames: Tensor, newest: Tensor, is_first: Tensor) -> Tensor:
    rows = torch.cat([frames, newest.unsqueeze(1)], dim=1)
    where = is_first.view(-1, *(1,) * (rows.dim() - 1))
    return torch.where(where, newest.unsqueeze(1), rows)


def _axis(leaf: Box) -> int:
    """Along which axis of one observation the frames are put."""
    return 2 if len(leaf.shape) == 3 and leaf.channels_last else 0


def _joined(leaf: Space, rows: Tensor) -> Tensor:
    """[B, count, ...] -> [B, ...] with one axis `count` times as long; scalars become vectors."""
    if rows.dim() == 2:
        return rows
    if isinstance(leaf, Box) and _axis(leaf) == 2:
        return rows.movedim(1, -2).flatten(-2)
    return rows.flatten(1, 2)
