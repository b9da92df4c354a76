"""Conversion of action tensors to the actions that an environment's `step` accepts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from torch import Tensor

from rlsdk.environments.adapters.nested import Array, Arrays, parts_of
from rlsdk.environments.adapters.unusable_input import no_tensors, not_finite, part_of
from rlsdk.spaces import Box, Dict, Space, dtype_of, shape_of

ActionRows: TypeAlias = "Array | list[object]"
"""One action per environment: an array [B, ..], or B dicts or tuples."""


class ActionDecoder:
    """Converts actions [B, ...] in environment units to numpy arrays in the dtype of the space.

    Actions of a float Box are clipped to its bounds.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts = {key: ActionDecoder(child) for key, child in parts_of(space)}
        self.rows: Callable[[object], ActionRows] = self._rows if self.parts else self._leaf
        """The same as a call of the decoder, without a further Python call."""
        if self.parts:
            return
        self.shape = shape_of(space)
        self.dtype = np.dtype(space.dtype if isinstance(space, Box) else dtype_of(space))
        self.bounds: tuple[Array, Array] | None = None
        if isinstance(space, Box) and self.dtype.kind == "f":
            # bounds [1, ..] have the shape of a single action, so that it needs no broadcasting
            self.bounds = space.low[None], space.high[None]

    def __call__(self, action: object) -> ActionRows:
        """One action per environment: an array [B, ..], or for nested spaces a list of B dicts or tuples.

        Raises:
            DivergenceError: an action is NaN or infinite. UsageError: the actions are not tensors.
        """
        return self.rows(action)

    def _rows(self, action: object) -> list[object]:
        decoded = {key: part(part_of(action, key, self.space)) for key, part in self.parts.items()}
        rows: list[dict[str | int, object]] = [
            {key: values[i] for key, values in decoded.items()} for i in range(len(next(iter(decoded.values()))))
        ]
        return [row if isinstance(self.space, Dict) else tuple(row.values()) for row in rows]

    def batched(self, action: object) -> Arrays:
        """The actions as arrays [B, ...], nested as the space. gymnasium's vector environments take this form.

        Raises:
            DivergenceError, UsageError: as a call of the decoder.
        """
        if not self.parts:
            return self._leaf(action)
        parts = {str(key): part.batched(part_of(action, key, self.space)) for key, part in self.parts.items()}
        return parts if isinstance(self.space, Dict) else tuple(parts.values())

    def _leaf(self, action: object) -> Array:
        if not isinstance(action, Tensor):
            raise no_tensors(action, "a torch tensor")
        return self.decoded(action.numpy(force=True) if action.requires_grad or not action.is_cpu else action.numpy())

    def decoded(self, array: Array) -> Array:
        """The same for actions in an array [B, ..] of a space that is not nested."""
        if array.shape[1:] != self.shape:
            array = array.reshape(-1, *self.shape)
        if (bounds := self.bounds) is not None:
            # if the sum of squares is finite, all numbers are; if it is not, it may only have overflowed
            if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
                raise not_finite(array)
            array = np.minimum(np.maximum(array, bounds[0]), bounds[1])
        # without clipping the array is copied, because an environment may write into its action
        return array.astype(self.dtype, copy=bounds is None)
