"""Frame stacking: several consecutive observations become one, so that networks see motion."""

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
    """The last `count - 1` observations of each environment, [B, count - 1, ..] per leaf, and the policy's carry."""

    frames: Features
    inner: CarryT


class FrameStacker:
    """Stacks the last `count` observations, the newest last. At the start of an episode the first observation is repeated.

    Vectors are concatenated, images are concatenated along their channels, and Discrete values become a MultiDiscrete.
    """

    def __init__(self, space: Space, count: int) -> None:
        self.single, self.count = space, count
        self.space = map_space(space, self._stacked)
        self.memory: Features = None
        """The last frames of the training environments. They persist between two calls of `learn`."""

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
        """The newest frame [.., *single] of stacked observations."""

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
        """The stacked observations of frames [N, count, *single], the newest last."""
        return map_leaves(self.single, lambda path, leaf, rows: _joined(leaf, rows), frames)

    def initial(self, batch: int, device: str) -> Features:
        """The last frames of `batch` environments before an episode starts: zeros, [B, count - 1, ..] per leaf."""

        def zeros(path: str, leaf: Space) -> Tensor:
            return torch.zeros(
                batch, self.count - 1, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=device
            )

        return map_leaves(self.single, zeros)

    def push(self, frames: Features, features: Features, is_first: Tensor) -> tuple[Features, Features]:
        """(stacked observations, next `frames`) for the newest observations.

        Args:
            frames: the last frames, [B, count - 1, ..] per leaf.
            features: the newest observations, [B, ..] per leaf.
            is_first: bool [B], True where an episode starts; its older frames are replaced by the newest observation.
        """
        history = map_leaves(self.single, lambda path, leaf, old, new: _history(old, new, is_first), frames, features)
        return self.joined(history), map_leaves(self.single, lambda path, leaf, rows: rows[:, 1:], history)


def _history(frames: Tensor, newest: Tensor, is_first: Tensor) -> Tensor:
    rows = torch.cat([frames, newest.unsqueeze(1)], dim=1)
    where = is_first.view(-1, *(1,) * (rows.dim() - 1))
    return torch.where(where, newest.unsqueeze(1), rows)


def _axis(leaf: Box) -> int:
    """The axis of an observation along which frames are concatenated."""
    return 2 if len(leaf.shape) == 3 and leaf.channels_last else 0


def _joined(leaf: Space, rows: Tensor) -> Tensor:
    """Concatenate frames: [B, count, ...] -> [B, ...] with one axis `count` times as long. Scalars become vectors."""
    if rows.dim() == 2:
        return rows
    if isinstance(leaf, Box) and _axis(leaf) == 2:
        return rows.movedim(1, -2).flatten(-2)
    return rows.flatten(1, 2)
