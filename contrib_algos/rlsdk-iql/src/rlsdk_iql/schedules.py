"""The learning rate of the paper for policies: a cosine, as a setting that files store."""

from __future__ import annotations

import math

from rlsdk.errors import SettingsError
from rlsdk.settings import Piecewise

PIECES = 32
"""The number of lines that the cosine consists of. The largest error is 0.06% of the first value."""


def cosine(start: float) -> Piecewise:
    """Return a schedule that falls from `start` to 0 along half a wave of a cosine (arXiv:2110.06169, appendix B).

    Raises:
        SettingsError: `start` is not a positive, finite number.
    """
    if isinstance(start, bool) or not isinstance(start, int | float) or not 0.0 < start < math.inf:
        raise SettingsError(f"cosine(start={start!r}): the first learning rate must be a positive number, such as 3e-4")
    shares = [number / PIECES for number in range(PIECES + 1)]
    return Piecewise(tuple((share, 0.5 * start * (1.0 + math.cos(math.pi * share))) for share in shares))
