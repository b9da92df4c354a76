"""The entries of `info` that an algorithm declares, such as a cost, as arrays of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.step_checks import entry


class InfoEntries:
    """The declared entries of the last step: `values` float32 [K, B], a row for each of K `names`, a column for each of B
    environments."""

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.names = tuple(names)
        self.values: NDArray[np.float32] = np.zeros((len(self.names), count), np.float32)

    def write(self, column: int, info: Mapping[str, object]) -> None:
        """Write the entries from the `info` of one environment into its column.

        Raises:
            EnvironmentFault: an entry is missing, or it is not a finite float32.
        """
        for row, name in enumerate(self.names):
            self.values[row, column] = entry(info, name)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> entries of all environments, float32 [B], copied."""
        return as_tensors(self.names, self.values)


def as_tensors(names: Sequence[str], values: NDArray[np.float32]) -> dict[str, Tensor]:
    """Name -> row of `values` float32 [K, B] as a tensor float32 [B], copied."""
    return dict(zip(names, torch.from_numpy(values.copy()), strict=True))
