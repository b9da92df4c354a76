"""Action tensors to what an environment's `step` takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.errors import DivergenceError
from rlsdk.spaces import Box, Space, dtype_of, shape_of


class ActionDecoder:
    """Actions [B, ...] in environment units as numpy in the space's dtype; Box actions are clipped to their bounds."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.shape = shape_of(space)
        self.dtype = np.dtype(space.dtype if isinstance(space, Box) else dtype_of(space))
        self.clips = isinstance(space, Box) and self.dtype.kind == "f"

    def __call__(self, action: Tensor) -> NDArray[Any]:
        """Raises DivergenceError when a policy answers NaN or infinity."""
        array = action.detach().cpu().numpy().reshape(-1, *self.shape)
        if self.clips:
            assert isinstance(self.space, Box)
            if not np.isfinite(array).all():
                raise DivergenceError(
                    f"the policy chose an action that is not finite: {array}; its weights have diverged"
                )
            array = np.clip(array, self.space.low, self.space.high)
        return array.astype(self.dtype, copy=False)
