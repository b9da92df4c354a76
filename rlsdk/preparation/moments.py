"""Running mean and variance. Source: Chan, Golub, LeVeque 1979, the pairwise update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FIRST_COUNT = 1e-4
"""Weight of the values before any data, mean 0 and variance 1."""
Statistic = NDArray[np.float64] | float
"""Of one number it is a float: arithmetic on arrays of one element costs ten times as much."""


class RunningMoments:
    """Mean and (population) variance of everything seen so far, float64 [*shape].

    numpy, not torch: a few numbers are updated at every environment step, where torch's cost per call is several times
    that of the arithmetic.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean: Statistic = np.zeros(shape) if shape else 0.0
        self.variance: Statistic = np.ones(shape) if shape else 1.0
        self.count = FIRST_COUNT

    def update(self, batch: NDArray[Any]) -> None:
        """Take in `batch` [N, *shape]."""
        rows = len(batch)
        if rows == 1:
            self.merge(1, _plain(batch[0]), 0.0)
            return
        mean = np.add.reduce(batch, axis=0, dtype=np.float64) / rows
        apart = batch - mean
        self.merge(rows, _plain(mean), _plain(np.add.reduce(apart * apart, axis=0) / rows))

    def merge(self, rows: int, mean: Statistic, variance: Statistic) -> None:
        """Take in the statistics of `rows` values."""
        delta, total = mean - self.mean, self.count + rows
        share = rows / total
        step = delta * share
        spread = (self.variance + delta * step) * (1.0 - share)
        self.mean, self.count = self.mean + step, total
        self.variance = spread + variance * share if rows > 1 else spread  # a single value has none

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "mean": torch.tensor(self.mean, dtype=torch.float64),
            "variance": torch.tensor(self.variance, dtype=torch.float64),
            "count": torch.tensor(self.count, dtype=torch.float64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the statistics are of another shape, or are no statistics."""
        given = {name: torch.as_tensor(state[name]).double().cpu().numpy() for name in ("mean", "variance", "count")}
        for name, value in given.items():
            shape = np.shape(getattr(self, name))
            if value.shape != shape:
                raise ValueError(f"normaliser {name} of shape {value.shape}, but this agent's has {shape}")
            if not np.isfinite(value).all() or (name != "mean" and (value < 0.0).any()):
                raise ValueError(f"normaliser {name} holds values that no statistic can have")
        self.mean, self.variance = _plain(given["mean"].copy()), _plain(given["variance"].copy())
        self.count = float(given["count"])


def _plain(value: Any) -> Statistic:
    """One number as a float, several as they are."""
    return value if value.ndim else float(value)
