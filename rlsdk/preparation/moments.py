"""Running mean and variance. Source: Chan, Golub, LeVeque 1979, the pairwise update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FIRST_COUNT = 1e-4
"""Weight of the values before any data, mean 0 and variance 1."""


class RunningMoments:
    """Mean and (population) variance of everything seen so far, float64 [*shape]."""

    def __init__(self, shape: tuple[int, ...], device: str) -> None:
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.variance = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = torch.tensor(FIRST_COUNT, dtype=torch.float64, device=device)

    def update(self, batch: Tensor) -> None:
        """Take in `batch` [N, *shape]."""
        rows = len(batch)
        variance, mean = torch.var_mean(batch.double(), dim=0, correction=0)
        delta, total = mean - self.mean, self.count + rows
        share = rows / total
        self.variance = self.variance * (1.0 - share) + variance * share + delta.square() * (self.count * share / total)
        self.mean = self.mean + delta * share
        self.count = total

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the statistics are of another shape, or are no statistics."""
        given = {name: torch.as_tensor(state[name], dtype=torch.float64) for name in ("mean", "variance", "count")}
        for name, value in given.items():
            own: Tensor = getattr(self, name)
            if value.shape != own.shape:
                raise ValueError(
                    f"normaliser {name} of shape {tuple(value.shape)}, but this agent's has {tuple(own.shape)}"
                )
            if not bool(value.isfinite().all()) or (name != "mean" and bool((value < 0.0).any())):
                raise ValueError(f"normaliser {name} holds values that no statistic can have")
            setattr(self, name, value.to(own.device).clone())
