"""Statistics over runs and tasks, with confidence intervals. Source: Agarwal et al. 2021, arXiv:2108.13264.

The scores of T tasks are a list of T arrays with one value per run. Tasks may have different numbers of runs. Intervals are
stratified bootstrap percentiles: runs are resampled within each task. The same scores and seed give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError

__all__ = [
    "Array",
    "Estimate",
    "RESAMPLES",
    "Scores",
    "Statistics",
    "better",
    "chance",
    "difference",
    "estimate",
    "improvement",
    "iqm",
    "mean",
    "median",
    "profile",
    "summarize",
]

Array = NDArray[np.float64]
Scores = Sequence[Array]
RESAMPLES = 2000
OF_RETURNS = 9999
"""Resamples for the interval of the returns of one agent: the number that scipy uses by default."""


@attrs.frozen
class Estimate:
    """A statistic and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g} .. {self.high:.4g}]"


def mean(values: Array) -> Array:
    """Mean over the last axis."""
    found: Array = values.mean(-1)
    return found


def iqm(values: Array) -> Array:
    """Interquartile mean over the last axis: the lowest and highest quarter of the values, rounded down, are left out."""
    count = values.shape[-1]
    cut = count // 4
    middle: Array = np.sort(values, axis=-1)[..., cut : count - cut].mean(-1)
    return middle


def median(values: Array) -> Array:
    """Median over the last axis."""
    found: Array = np.median(values, axis=-1)
    return found


def estimate(scores: Scores, statistic: Callable[[Array], Array], *, seed: int = 0) -> Estimate:
    """The value and the interval of `statistic` over the runs of all tasks together.

    Raises:
        SettingsError: a task has no score, or a score is not finite.
    """
    _check(scores)
    drawn = np.concatenate(_resampled(scores, np.random.default_rng(seed)), axis=-1)
    return _interval(float(statistic(np.concatenate(list(scores)))), statistic(drawn))


def better(x: Array, y: Array) -> Array:
    """P(X > Y) + P(X = Y) / 2 for samples [.., n] of X and [.., m] of Y, over the last axis.

    This is the Mann-Whitney statistic divided by n m.
    """
    difference = np.sign(x[..., :, None] - y[..., None, :])
    share: Array = (difference.mean((-2, -1)) + 1.0) / 2.0
    return share


def improvement(x: Scores, y: Scores, *, seed: int = 0) -> Estimate:
    """Probability that a run of X is better than a run of Y on the same task, averaged over tasks.

    Raises:
        SettingsError: the numbers of tasks differ, a task has no score, or a score is not finite.
    """
    _check(x)
    _check(y)
    if len(x) != len(y):
        raise SettingsError(f"{len(x)} and {len(y)} tasks cannot be compared; give scores on the same ones")
    rng = np.random.default_rng(seed)
    pairs = zip(_resampled(x, rng), _resampled(y, rng), strict=True)
    drawn = np.mean([better(ours, theirs) for ours, theirs in pairs], axis=0)
    return _interval(float(np.mean([better(a, b) for a, b in zip(x, y, strict=True)])), drawn)


def chance(x: Scores, y: Scores, *, seed: int = 0, permutations: int = 9999) -> float:
    """Two-sided p-value for the hypothesis that X and Y do not differ on any task.

    It is a permutation test of the value of `improvement`: runs are exchanged between X and Y within each task. The p-value is
    (count + 1) / (permutations + 1), as in Phipson & Smyth 2010. count is the number of permutations with a difference at least
    as large.
    """
    rng, drawn, found = np.random.default_rng(seed), np.zeros(permutations), 0.0
    for ours, theirs in zip(x, y, strict=True):
        together = np.concatenate([ours, theirs])
        # better(x, y) is a linear function of the rank sum of x, where tied values have their mean rank
        ranks = (np.sign(together[:, None] - together[None, :]).sum(-1) + len(together) + 1) / 2
        size, pairs = len(ours), len(ours) * len(theirs)
        expected = size * (len(together) + 1) / 2
        shuffled = rng.permuted(np.tile(ranks, (permutations, 1)), axis=1)
        drawn += (shuffled[:, :size].sum(1) - expected) / pairs
        found += (ranks[:size].sum() - expected) / pairs
    return float((np.count_nonzero(np.abs(drawn) >= abs(found) - 1e-9) + 1) / (permutations + 1))


def difference(x: Array, y: Array, *, seed: int = 0) -> Estimate:
    """The difference mean(x) - mean(y) of two independent samples, with its interval."""
    _check([x, y])
    rng = np.random.default_rng(seed)
    (ours,), (theirs,) = _resampled([x], rng), _resampled([y], rng)
    return _interval(float(x.mean() - y.mean()), ours.mean(-1) - theirs.mean(-1))


def profile(scores: Scores, thresholds: Array, *, seed: int = 0) -> tuple[Array, Array, Array]:
    """Performance profile: (share of runs above each threshold, lower and upper end of its interval), each [P].

    All tasks have the same weight.
    """
    _check(scores)

    def shares(values: Sequence[Array]) -> Array:
        above = [(task[..., None] > thresholds).mean(-2) for task in values]
        found: Array = np.mean(above, axis=0)
        return found

    low, high = np.percentile(shares(_resampled(scores, np.random.default_rng(seed))), (2.5, 97.5), axis=0)
    return shares(scores), low, high


def _check(scores: Scores) -> None:
    if not scores or not all(len(task) for task in scores):
        raise SettingsError("there is nothing to summarize: every task needs at least one finished run")
    if not all(np.isfinite(task).all() for task in scores):
        raise SettingsError("a score is not finite; look at the run it comes from")


def _resampled(scores: Scores, rng: np.random.Generator) -> list[Array]:
    """Bootstrap samples of the runs of each task, [RESAMPLES, runs]."""
    return [task[rng.integers(len(task), size=(RESAMPLES, len(task)))] for task in scores]


def _interval(value: float, drawn: Array) -> Estimate:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(value, float(low), float(high))


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
        SettingsError: there are no values, or `confidence` is not between 0 and 1.
    """
    # Imported here: 0.7 s, and most commands need no interval of returns.
    from scipy.stats import bootstrap

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
        interval=_interval_of_mean(sample, confidence, seed, bootstrap),
    )


def _interval_of_mean(
    sample: Array, confidence: float, seed: int, bootstrap: Callable[..., Any]
) -> tuple[float, float] | None:
    # scipy raises an error for fewer than two values.
    if sample.size < 2:
        return None
    # All resamples are equal then: the corrections divide by zero and scipy returns NaN.
    if np.ptp(sample) == 0.0:
        return float(sample[0]), float(sample[0])
    found = bootstrap(
        (sample,), np.mean, confidence_level=confidence, n_resamples=OF_RETURNS, rng=np.random.default_rng(seed)
    ).confidence_interval
    return float(found.low), float(found.high)
