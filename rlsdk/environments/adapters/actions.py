"""Action tensors to what an environment's `step` takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from rlsdk.environments.adapters.unusable_input import no_tensors, part_of
from rlsdk.errors import DivergenceError
from rlsdk.spaces import Box, Dict, Space, Tuple, dtype_of, shape_of


class ActionDecoder:
    """Actions [B, ...] in environment units as numpy in the space's dtype; float Box actions are clipped to their bounds."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts: dict[str | int, ActionDecoder] = {}
        if isinstance(space, Dict | Tuple):
            children = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
            self.parts = {key: ActionDecoder(child) for key, child in children}
            return
        self.shape = shape_of(space)
        self.dtype = np.dtype(space.dtype if isinstance(space, Box) else dtype_of(space))
        self.clips = isinstance(space, Box) and self.dtype.kind == "f"
        # with an axis for the rows: one action then meets bounds of its own shape, and no broadcasting is needed
        self.low: Any = space.low[None] if isinstance(space, Box) else None
        self.high: Any = space.high[None] if isinstance(space, Box) else None

    def __call__(self, action: Any) -> Any:
        """One action per environment: an array with a leading axis [B], or for nested spaces a list of B values.

        Raises:
            DivergenceError: a policy answered NaN or infinity. UsageError: actions are no tensors.
        """
        return self._rows(action) if self.parts else self._leaf(action)

    def _rows(self, action: Any) -> Any:
        decoded = {key: part(part_of(action, key, self.space)) for key, part in self.parts.items()}
        rows = [{key: values[i] for key, values in decoded.items()} for i in range(len(next(iter(decoded.values()))))]
        return rows if isinstance(self.space, Dict) else [tuple(row.values()) for row in rows]

    def batched(self, action: Any) -> Any:
        """As calling it, but nested as the space with arrays [B, ...], as gymnasium's vector environments take actions."""
        if not self.parts:
            return self._leaf(action)
        parts = {key: part.batched(part_of(action, key, self.space)) for key, part in self.parts.items()}
        return parts if isinstance(self.space, Dict) else tuple(parts.values())

    def _leaf(self, action: Tensor) -> Any:
        try:
            array = action.numpy(force=True) if action.requires_grad or not action.is_cpu else action.numpy()
        except AttributeError:
            raise no_tensors(action, "a torch tensor") from None
        if array.shape[1:] != self.shape:
            array = array.reshape(-1, *self.shape)
        if self.clips:
            # a finite sum of squares proves that all are finite; one that is not may only have overflowed
            if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
                raise DivergenceError(
                    f"the policy chose an action that is not finite: {array}; its weights have diverged"
                )
            return np.minimum(np.maximum(array, self.low), self.high).astype(self.dtype, copy=False)
        return array.astype(self.dtype, copy=True)  # a copy: an environment may write into its action
