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
        self._known = mean, np.sqrt(variance + self.epsilon)

    def observe(self, values: Any) -> None:
        """Take values into the moments; numpy."""
        self.moments.update(values)
        self.refresh()

    def of_array(self, values: Any) -> Tensor:
        """numpy values, normalised: for acting its calls cost less."""
        mean, deviation = self._known
        scaled = ((values - mean) / deviation).astype(np.float32)
        return torch.from_numpy(np.minimum(np.maximum(scaled, self._low), self._high))

    def of_tensor(self, values: Tensor) -> Tensor:
        """Values on any device, normalised."""
        mean, deviation = (torch.from_numpy(known).to(values.device) for known in self._known)
        return ((values - mean) / deviation).clamp(-self.bound, self.bound).float()

    def restored(self, values: Tensor) -> Tensor:
        """Values that were normalised, as they were, up to clipping."""
        mean, deviation = (torch.from_numpy(known).to(values.device) for known in self._known)
        return (values * deviation + mean).float()


def as_array(values: Tensor) -> Any:
    """As numpy; `force` costs as much again where it is not needed."""
    return values.numpy() if values.is_cpu and not values.requires_grad else values.numpy(force=True)
