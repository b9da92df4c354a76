"""Normalisation of one float part of observations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlsdk.networks.running_moments import RunningMoments
from rlsdk.settings.preprocessing import Normalization


class LeafNormalizer:
    """(x - mean) / sqrt(variance + epsilon) within +-`clip_obs`, float32; values [.., *shape].

    The difference is taken in float64: large offsets with small deviations must not cancel. Statistics are updated in numpy,
    where a few numbers cost less; torch reads the same memory, so that values cross between the two only to be counted.
    """

    def __init__(self, shape: tuple[int, ...], settings: Normalization) -> None:
        self.moments, self.epsilon, self.bound = RunningMoments(shape), settings.epsilon, settings.clip_obs
        self._array_mean, self._array_deviation = np.zeros((1, *shape)), np.ones((1, *shape))
        self.mean, self.deviation = torch.from_numpy(self._array_mean), torch.from_numpy(self._array_deviation)
        """float64 [1, *shape]; views of the arrays."""
        self._copies: tuple[Tensor, Tensor] | None = None
        """Copies of both on the accelerator used last."""
        self.refresh()

    def refresh(self) -> None:
        """Take over the moments."""
        mean, variance = self.moments.mean_variance
        np.copyto(self._array_mean, mean)
        np.sqrt(variance + self.epsilon, out=self._array_deviation)
        self._copies = None

    def update(self, values: Tensor) -> None:
        """Take values [N, *shape] into the moments."""
        self.moments.update(values.numpy() if values.is_cpu and not values.requires_grad else values.numpy(force=True))
        self.refresh()

    def normalize(self, values: Tensor) -> Tensor:
        """Values [.., *shape] as networks see them, float32."""
        mean, deviation = self._on(values.device)
        return values.sub(mean).div_(deviation).float().clamp_(-self.bound, self.bound)

    def denormalize(self, values: Tensor) -> Tensor:
        """The values [.., *shape] that were normalised, up to clipping."""
        mean, deviation = self._on(values.device)
        return (values * deviation + mean).float()

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(mean, deviation) on a device, float64 [1, *shape]."""
        if device.type == "cpu":
            return self.mean, self.deviation
        if self._copies is None or self._copies[0].device != device:
            self._copies = self.mean.to(device), self.deviation.to(device)
        return self._copies
