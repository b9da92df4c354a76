"""The space of shares: n numbers of at least 0 whose sum is 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk.errors import SettingsError, shown

TOLERANCE = 1e-4
"""How far the sum may be from 1. Sums of float32 numbers are rounded."""
MOST = 2**20
"""The largest number of shares."""


class Simplex(spaces.Box):
    """Shares of a whole, such as weights of a portfolio: float32 [n], each from 0 to 1, with the sum 1.

    rlsdk treats it as a Box from 0 to 1. With `action_distribution = "dirichlet"` the actions of an agent are in it.
    """

    def __init__(self, n: int, *, seed: int | np.random.Generator | None = None) -> None:
        """Raises SettingsError if `n` is not a whole number from 2 to `MOST`."""
        if isinstance(n, bool) or not isinstance(n, int) or not 2 <= n <= MOST:
            raise SettingsError(
                f"Simplex(n = {shown(n, 60)}) needs a whole number of at least 2 shares, and at most {MOST:,}"
            )
        super().__init__(0.0, 1.0, (n,), np.float32, seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> NDArray[Any]:
        """Return shares that are uniform over the space, float32 [n]."""
        return self.np_random.dirichlet(np.ones(self.shape[0])).astype(np.float32)

    def contains(self, x: Any) -> bool:
        """Whether `x` are n numbers from 0 to 1 whose sum is 1, up to `TOLERANCE`."""
        return super().contains(x) and abs(float(np.sum(x, dtype=np.float64)) - 1.0) <= TOLERANCE

    def __repr__(self) -> str:
        return f"Simplex({self.shape[0]})"
