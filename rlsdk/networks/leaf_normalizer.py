"""Normalisation of one leaf of observations that contains floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlsdk.kernels import factory
from rlsdk.networks.running_moments import RunningMoments, SharedArray
from rlsdk.settings.preprocessing import Normalization

FEW = 1024
"""Up to this number of values, numpy normalises faster than torch."""


class LeafNormalizer:
    """Computes (x - mean) / sqrt(variance + epsilon), clipped to +-`clip_obs`, as float32 for values [.., *shape].

    The difference is computed in float64, so that large offsets with small deviations do not cancel. Statistics are
    updated in numpy, which is faster for few numbers; torch reads the same memory.
    """

    def __init__(self, shape: tuple[int, ...], settings: Normalization) -> None:
        self.moments, self.epsilon, self.bound = RunningMoments(shape), settings.epsilon, settings.clip_obs
        self._mean, self._deviation, self._row = (SharedArray((1, *shape)) for _ in range(3))
        self._compiled = factory.normalization()
        self._copies: tuple[Tensor, Tensor] | None = None
        """Copies of mean and deviation on the accelerator that was used last."""
        self.refresh()

    def refresh(self) -> None:
        """Compute mean and deviation again from the moments."""
        mean, variance = self.moments.mean_variance
        np.copyto(self._mean.array, mean)
        np.sqrt(variance + self.epsilon, out=self._deviation.array)
        self._copies = None

    @property
    def mean(self) -> Tensor:
        """The mean, float64 [1, *shape]."""
        return self._mean.tensor

    @property
    def deviation(self) -> Tensor:
        """The deviation sqrt(variance + epsilon), float64 [1, *shape]."""
        return self._deviation.tensor

    def update(self, values: Tensor) -> None:
        """Add values [N, *shape] to the moments."""
        if len(values) == 1:  # copied into memory that numpy shares
            self._row.tensor.copy_(values)
            self.moments.update(self._row.array)
        else:
            self.moments.update(values.numpy(force=not values.is_cpu or values.requires_grad))
        self.refresh()

    def normalize(self, values: Tensor) -> Tensor:
        """Normalise values [.., *shape] to float32, as networks receive them."""
        mean, deviation = self._on(values.device)
        return values.sub(mean).div_(deviation).float().clamp_(-self.bound, self.bound)

    def normalize_detached(self, values: Tensor) -> Tensor:
        """Normalise like `normalize`, but faster, for values [.., *shape] without graph.

        Without compiled code, few numbers on the CPU are normalised in numpy: calls of torch take longer than the arithmetic.
        """
        if self._compiled is not None:
            found = self._compiled(values, self._mean.tensor, self._deviation.tensor, self.bound)
            if found is not None:
                return found
        if values.numel() > FEW or not values.is_cpu:
            return self.normalize(values)
        scaled = values.numpy() - self._mean.array
        scaled /= self._deviation.array
        return torch.from_numpy(np.minimum(np.maximum(scaled.astype(np.float32), -self.bound), self.bound))

    def by_row(self, values: Tensor, into: Tensor) -> Callable[[int], object]:
        """Return a function of t that normalises `values[t]` to `into[t]`, for [T, .., *shape]."""
        if self._compiled is not None:
            found = self._compiled.by_row(values, into, self._mean.tensor, self._deviation.tensor, self.bound)
            if found is not None:
                return found
        raw, given = values.unbind(), into.unbind()
        return lambda t: given[t].copy_(self.normalize_detached(raw[t]))

    def denormalize(self, values: Tensor) -> Tensor:
        """Compute the original values [.., *shape] from normalised ones, up to clipping."""
        mean, deviation = self._on(values.device)
        return (values * deviation + mean).float()

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(mean, deviation) on a device, float64 [1, *shape]."""
        if device.type == "cpu":
            return self._mean.tensor, self._deviation.tensor
        if self._copies is None or self._copies[0].device != device:
            self._copies = self.mean.to(device), self.deviation.to(device)
        return self._copies
