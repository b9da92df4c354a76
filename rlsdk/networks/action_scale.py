"""Converts between the units of a bounded action space and the interval (-1, 1), in which networks compute actions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.errors import UnsupportedSpaceError
from rlsdk.spaces import LARGEST_BOUND, Box


class ActionScale(nn.Module):
    """An affine map between environment units [N, *shape] and unit actions [N, A], where A is the number of elements.

    Records (buffers, rollouts, results of `predict`) contain environment units. Only networks use unit actions.
    """

    center: Tensor
    half_width: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, space: Box) -> None:
        super().__init__()
        if not space.is_bounded or not (space.low < space.high).all():
            raise UnsupportedSpaceError(
                f"the action space needs finite bounds with low < high and at most {LARGEST_BOUND:g}, got low"
                f" {space.low.min()}, high {space.high.max()};"
                " declare them, or wrap the environment with gymnasium.wrappers.TransformAction(env, lambda action: action,"
                " gymnasium.spaces.Box(low, high, shape))"
            )
        if not np.issubdtype(np.dtype(space.dtype), np.floating):
            raise UnsupportedSpaceError(f"the action space must hold floats, got {space.dtype}; declare it as float32")
        low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
        self.shape, self.size = space.shape, low.size
        for name, value in (
            ("center", (low + high) / 2),
            ("half_width", (high - low) / 2),
            ("low", low),
            ("high", high),
        ):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32), persistent=False)

    def to_environment(self, unit: Tensor) -> Tensor:
        """Convert unit actions [N, A] to environment units [N, *shape]; rounding errors past the bounds are clamped."""
        action = torch.addcmul(self.center, unit, self.half_width).clamp(self.low, self.high)
        return action.reshape(-1, *self.shape)

    def to_unit(self, action: Tensor) -> Tensor:
        """Convert environment units [N, *shape] to unit actions [N, A]."""
        return (action.reshape(-1, self.size) - self.center) / self.half_width
