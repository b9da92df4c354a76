"""The scale of one float part of observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.preparation.moments import RunningMoments
from rlsdk.settings.preparation import Normalization


class LeafScale:
    """(x - mean) / sqrt(variance + epsilon) within +-`clip_obs`, float32; values [N, *shape].

    The difference is taken in float64: large offsets with small deviations must not cancel.
    """

    def __init__(self, shape: tuple[int, ...], settings: Normalization) -> None:
        self.moments, self.epsilon, self.bound = RunningMoments(shape), settings.epsilon, settings.clip_obs
        self._high = np.full((1, *shape), self.bound, np.float32)  # as an array: a number would first be made one
        self._low = -self._high
        self.refresh()

    def refresh(self) -> None:
        """Look at the moments again."""
        mean, variance = self.moments.kept
        self.known = mean, np.sqrt(variance + self.epsilon)
        """Mean and deviation, float64 [1, *shape]."""

    def observe(self, values: Tensor) -> None:
        """Take values into the moments."""
        self._observe(as_array(values))

    def seen(self, values: Tensor) -> Tensor:
        """`observe` and `normalized` at once."""
        array = as_array(values)
        self._observe(array)
        return self._of_array(array) if values.is_cpu else self._of_tensor(values)

    def normalized(self, values: Tensor) -> Tensor:
        """Values as networks see them."""
        if values.is_cpu and not torch.compiler.is_exporting():
            return self._of_array(values.numpy())
        return self._of_tensor(values)

    def restored(self, values: Tensor) -> Tensor:
        """Values that were normalised, as they were, up to clipping."""
        mean, deviation = self._known_on(values.device)
        return (values * deviation + mean).float()

    def _observe(self, array: Any) -> None:
        self.moments.update(array)
        self.refresh()

    def _of_array(self, array: Any) -> Tensor:
        """In numpy: for acting its calls cost less."""
        mean, deviation = self.known
        scaled = ((array - mean) / deviation).astype(np.float32)
        return torch.from_numpy(np.minimum(np.maximum(scaled, self._low), self._high))

    def _of_tensor(self, values: Tensor) -> Tensor:
        mean, deviation = self._known_on(values.device)
        return ((values - mean) / deviation).clamp(-self.bound, self.bound).float()

    def _known_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        mean, deviation = self.known
        return torch.from_numpy(mean).to(device), torch.from_numpy(deviation).to(device)


def as_array(values: Tensor) -> Any:
    """As numpy; `force` costs as much again where it is not needed."""
    return values.numpy() if values.is_cpu and not values.requires_grad else values.numpy(force=True)
