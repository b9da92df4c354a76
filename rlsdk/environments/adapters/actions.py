"""Action tensors to what an environment's `step` takes."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from torch import Tensor

from rlsdk.environments.adapters.nested import Array, Arrays, parts_of
from rlsdk.environments.adapters.unusable_input import no_tensors, part_of
from rlsdk.errors import DivergenceError
from rlsdk.spaces import Box, Dict, Space, dtype_of, shape_of

ActionRows: TypeAlias = "Array | list[object]"
"""One action per environment: an array [B, ..], or B dicts or tuples."""


class ActionDecoder:
    """Actions [B, ...] in environment units as numpy in the space's dtype; float Box actions are clipped to their bounds."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts = {key: ActionDecoder(child) for key, child in parts_of(space)}
        if self.parts:
            return
        self.shape = shape_of(space)
        self.dtype = np.dtype(space.dtype if isinstance(space, Box) else dtype_of(space))
        self.bounds: tuple[Array, Array] | None = None
        if isinstance(space, Box) and self.dtype.kind == "f":
            # with an axis for the rows: a single action needs no broadcasting then
            self.bounds = space.low[None], space.high[None]

    def __call__(self, action: object) -> ActionRows:
        """One action per environment: an array with a leading axis [B], or for nested spaces a list of B values.

        Raises:
            DivergenceError: a policy answered NaN or infinity. UsageError: actions are not tensors.
        """
        return self._rows(action) if self.parts else self._leaf(action)

    def _rows(self, action: object) -> list[object]:
        decoded = {key: part(part_of(action, key, self.space)) for key, part in self.parts.items()}
        rows: list[dict[str | int, object]] = [
            {key: values[i] for key, values in decoded.items()} for i in range(len(next(iter(decoded.values()))))
        ]
        return [row if isinstance(self.space, Dict) else tuple(row.values()) for row in rows]

    def batched(self, action: object) -> Arrays:
        """As calling it, but nested as the space with arrays [B, ...], as gymnasium's vector environments take actions."""
        if not self.parts:
            return self._leaf(action)
        parts = {str(key): part.batched(part_of(action, key, self.space)) for key, part in self.parts.items()}
        return parts if isinstance(self.space, Dict) else tuple(parts.values())

    def _leaf(self, action: object) -> Array:
        if not isinstance(action, Tensor):
            raise no_tensors(action, "a torch tensor")
        array: Array = action.numpy(force=True) if action.requires_grad or not action.is_cpu else action.numpy()
        if array.shape[1:] != self.shape:
            array = array.reshape(-1, *self.shape)
        if (bounds := self.bounds) is not None:
            # a finite sum of squares proves that all are finite; one that is not may only have overflowed
            if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
                raise DivergenceError(
                    f"the policy chose an action that is not finite: {array}; its weights have diverged"
                )
            array = np.minimum(np.maximum(array, bounds[0]), bounds[1])
        # a copy where nothing was computed: an environment may write into its action
        return array.astype(self.dtype, copy=bounds is None)
