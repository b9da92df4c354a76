"""A sum tree: samples in proportion to stored values and changes values in logarithmic time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SumTree:
    """`size` values >= 0 with a binary tree of their sums. All are 0 at first, and methods take batches.

    Numbers are float64, so that sums of a million values are accurate.
    """

    def __init__(self, size: int) -> None:
        self.size, self.leaves = size, 1 << max(0, size - 1).bit_length()
        self.nodes: NDArray[np.float64] = np.zeros(2 * self.leaves)  # node i has the children 2 i and 2 i + 1

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self.nodes[1])

    @property
    def values(self) -> NDArray[np.float64]:
        """The values [size], as a view."""
        return self.nodes[self.leaves : self.leaves + self.size]

    def set(self, index: NDArray[np.int64], values: ArrayLike) -> None:
        """Set the values at `index`; if an index occurs twice, the last value counts."""
        nodes = index + self.leaves
        self.nodes[nodes] = values
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self.nodes[nodes] = self.nodes[2 * nodes] + self.nodes[2 * nodes + 1]

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each mass in [0, total), the first index whose cumulative sum exceeds it. Its value is never 0."""
        node = np.ones(len(mass), np.int64)
        rest = mass.copy()
        for _ in range(self.leaves.bit_length() - 1):
            left = self.nodes[2 * node]
            right = (rest >= left) & (self.nodes[2 * node + 1] > 0.0)
            rest = np.where(right, rest - left, rest)
            node = 2 * node + right
        return node - self.leaves
