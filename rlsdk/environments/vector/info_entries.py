"""The entries of `info` that an algorithm declares, such as a cost, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.step_checks import entry


class InfoEntries:
    """One row of numbers for each of `names`, one column for each environment: float32 [K, B]."""

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.names = tuple(names)
        self.values: NDArray[np.float32] = np.zeros((len(self.names), count), np.float32)

    def write(self, column: int, info: Mapping[str, object]) -> None:
        """Note what one environment gave.

        Raises:
            EnvironmentFault: an entry is missing, or no finite number.
        """
        for row, name in enumerate(self.names):
            self.values[row, column] = entry(info, name)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> float32 [B], copied."""
        return as_tensors(self.names, self.values)


def as_tensors(names: Sequence[str], values: NDArray[np.float32]) -> dict[str, Tensor]:
    """Name -> float32 [B], of `values` float32 [K, B]; copied."""
    return dict(zip(names, torch.from_numpy(values.copy()), strict=True))
