"""Running mean and variance. Source: Chan, Golub, LeVeque 1979, the pairwise update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Vector = NDArray[np.float64]
Floats = NDArray[np.floating]
FIRST_COUNT = 1e-4
"""The weight of the initial values, mean 0 and variance 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The count, mean and sum of squared deviations, [F], of encoded observations."""

    count: int
    mean: Vector
    squares: Vector


class SharedArray:
    """A numpy array of zeros, float64 [*shape], and a tensor in the same memory. A copy of the object has its own memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array: Vector = np.zeros(shape)
        self.tensor = torch.from_numpy(self.array)

    def __getstate__(self) -> Vector:
        return self.array

    def __setstate__(self, values: Vector) -> None:
        self.array = values
        self.tensor = torch.from_numpy(values)


class RunningMoments:
    """The mean and (population) variance of all values so far, float64 [*shape].

    It uses numpy, because a few numbers are updated at every environment step, for which calls of torch take several
    times as long. Arrays have the shape [1, *shape] of a single observation, because broadcasting costs as much as
    another operation.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean_variance: tuple[Vector, Vector] = np.zeros((1, *shape)), np.ones((1, *shape))
        """Mean and variance, float64 [1, *shape]."""
        self.count = FIRST_COUNT

    @property
    def mean(self) -> Vector:
        return cast("Vector", self.mean_variance[0][0])

    @property
    def variance(self) -> Vector:
        return cast("Vector", self.mean_variance[1][0])

    def update(self, batch: Floats) -> None:
        """Add the values `batch` [N, *shape]."""
        rows = len(batch)
        if rows == 1:
            self.merge(1, batch, None)
            return
        mean = np.add.reduce(batch, axis=0, dtype=np.float64, keepdims=True) / rows
        apart = batch - mean
        self.merge(rows, mean, np.add.reduce(apart * apart, axis=0, keepdims=True) / rows)

    def merge(self, rows: int, mean: Floats, variance: Vector | None) -> None:
        """Add `rows` values, given their mean and variance, [1, *shape]. For a single value, the variance is None."""
        self.mean_variance = self._with(rows, mean, variance)
        self.count += rows

    def update_row(self, values: Vector) -> Vector:
        """Add numbers [N] and return the new variance, [1]. Only for moments of shape (); equals `update_each`."""
        rows = len(values)
        if rows == 1:
            self.merge(1, values, None)
            return self.mean_variance[1]
        center = np.add.reduce(values) / rows
        apart = values - center
        mean, squares = np.add.reduce(apart) / rows, np.add.reduce(apart * apart) / rows
        self.merge(rows, np.array([center + mean]), np.array([max(squares - mean * mean, 0.0)]))
        return self.mean_variance[1]

    def update_each(self, batches: Vector, counted: NDArray[np.bool_] | None = None) -> Vector:
        """Add numbers [T, N] row by row and return the variance after each row, [T]. Only for moments of shape ().

        `counted`, bool [T, N], is True for the numbers that count; None = all.
        """
        if counted is None:
            rows, center = batches.shape[1] * np.arange(1, len(batches) + 1), batches.mean()
            apart = batches - center  # avoids cancellation for large, similar numbers
        elif counted.any():
            rows, center = counted.sum(1).cumsum(), batches[counted].mean()
            apart = np.where(counted, batches - center, 0.0)
        else:
            return np.repeat(self.mean_variance[1], len(batches))
        divisor = np.maximum(rows, 1)
        mean = apart.sum(1).cumsum() / divisor
        spread = np.maximum((apart * apart).sum(1).cumsum() / divisor - mean * mean, 0.0)
        means, variances = self._with(rows, center + mean, spread)
        self.mean_variance, self.count = (means[-1:], variances[-1:]), self.count + int(rows[-1])
        return variances

    def _with(self, rows: int | NDArray[np.int64], mean: Floats, variance: Vector | None) -> tuple[Vector, Vector]:
        """(mean, variance) of the earlier values together with these."""
        before, spread = self.mean_variance
        delta, share = mean - before, rows / (self.count + rows)
        step = delta * share
        spread = (spread + delta * step) * (1.0 - share)
        return before + step, spread if variance is None else spread + variance * share

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "mean": torch.tensor(self.mean, dtype=torch.float64),
            "variance": torch.tensor(self.variance, dtype=torch.float64),
            "count": torch.tensor(self.count, dtype=torch.float64),
        }

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore the statistics. Raises ValueError if they have another shape, or impossible values."""
        given = {name: torch.as_tensor(state[name]).double().cpu().numpy() for name in ("mean", "variance", "count")}
        for name, value in given.items():
            shape = () if name == "count" else self.mean.shape
            if value.shape != shape:
                raise ValueError(f"normaliser {name} of shape {value.shape}, but this agent's has {shape}")
            if not np.isfinite(value).all() or (name != "mean" and (value < 0.0).any()):
                raise ValueError(f"normaliser {name} holds values that no statistic can have")
        self.mean_variance = given["mean"][None].copy(), given["variance"][None].copy()
        self.count = float(given["count"])
