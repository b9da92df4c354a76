"""Statistics of a sample of returns, with confidence intervals. They need scipy, which `rlsdk[stats]` installs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError
from rlsdk.runtime.packages import pip_install

# The number that scipy uses by default.
RESAMPLES = 9999


def iqm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interquartile mean over the last axis: the lowest and highest quarter of the values, rounded down, are left out."""
    count = values.shape[-1]
    cut = count // 4
    middle: NDArray[np.float64] = np.sort(values, axis=-1)[..., cut : count - cut].mean(-1)
    return middle


@attrs.frozen
class Statistics:
    """Statistics of a sample of episode returns."""

    count: int
    mean: float
    std: float
    """Standard deviation (population formula)."""
    median: float
    iqm: float
    """Interquartile mean: the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264)."""
    confidence: float
    interval: tuple[float, float] | None
    """Bootstrap confidence interval of the mean, bias-corrected and accelerated; None for fewer than two values."""


def summarize(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Statistics:
    """The statistics of a sample. The same sample and seed give the same interval.

    Raises:
        SettingsError: scipy is not installed, there are no values, or `confidence` is not between 0 and 1.
    """
    try:
        # Imported here: 0.7 s, and most evaluations need no interval.
        from scipy.stats import bootstrap
    except ImportError:
        raise SettingsError(f"statistics of returns need scipy: {pip_install('rlsdk[stats]')}") from None
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        raise SettingsError("there are no values to summarize; play at least one episode")
    if not 0.0 < confidence < 1.0:
        raise SettingsError(f"confidence = {confidence!r} must lie between 0 and 1, for example 0.95")
    return Statistics(
        count=sample.size,
        mean=float(sample.mean()),
        std=float(sample.std()),
        median=float(np.median(sample)),
        iqm=float(iqm(sample)),
        confidence=confidence,
        interval=_interval(sample, confidence, seed, bootstrap),
    )


def _interval(
    sample: NDArray[np.float64], confidence: float, seed: int, bootstrap: Callable[..., Any]
) -> tuple[float, float] | None:
    # scipy raises an error for fewer than two values.
    if sample.size < 2:
        return None
    # All resamples are equal then: the corrections divide by zero and scipy returns NaN.
    if np.ptp(sample) == 0.0:
        return float(sample[0]), float(sample[0])
    found = bootstrap(
        (sample,), np.mean, confidence_level=confidence, n_resamples=RESAMPLES, rng=np.random.default_rng(seed)
    ).confidence_interval
    return float(found.low), float(found.high)
