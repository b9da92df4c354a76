"""Comparison of two sets of runs."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rlsdk.errors import SettingsError
from rlsdk.runtime import pip_install
from rlsdk_lab.scores import Score, means
from rlsdk_lab.statistics import Estimate, better, chance, difference, improvement

LEAST_RUNS = 5
"""Runs per side and environment that a verdict needs. With fewer runs, no difference is reliable."""
LEVEL = 0.05


@attrs.frozen(kw_only=True)
class Row:
    """The comparison of A and B on one environment."""

    env: str
    runs: tuple[int, int]
    means: tuple[float, float]
    difference: Estimate
    """Difference of the means, A - B."""
    better: float
    """Probability that a run of A is better than one of B."""
    p_value: float
    """p-value of the two-sided Mann-Whitney test. Null hypothesis: neither is better."""


@attrs.frozen(kw_only=True)
class Comparison:
    """The comparison of A and B on the environments that both have runs on."""

    rows: tuple[Row, ...]
    improvement: Estimate
    """Probability that a run of A is better than one of B, averaged over environments."""
    p_value: float
    """p-value of a two-sided permutation test. Null hypothesis: A and B do not differ on any environment."""
    left_out: tuple[str, ...]
    """Environments on which only one of them has runs."""

    def as_dict(self) -> dict[str, object]:
        """Return the comparison as nested dictionaries for JSON."""
        return attrs.asdict(self)

    def verdict(self) -> str:
        """Return one sentence: which of them is better, or that there is no difference or too few runs."""
        share, fewest = self.improvement, min(count for row in self.rows for count in row.runs)
        if fewest < LEAST_RUNS:
            return (
                f"too few runs for a verdict: A and B need at least {LEAST_RUNS} seeds each on every environment, "
                f"the fewest here is {fewest}"
            )
        if self.p_value < LEVEL and share.low > 0.5:
            return f"A is better: P(A > B) = {share}, p = {self.p_value:.2g}"
        if self.p_value < LEVEL and share.high < 0.5:
            return f"B is better: P(A > B) = {share}, p = {self.p_value:.2g}"
        return f"these runs show no difference: P(A > B) = {share}, p = {self.p_value:.2g}; more seeds can show smaller ones"


def compare(a: Sequence[Score], b: Sequence[Score]) -> Comparison:
    """Compare runs of one algorithm or setting with those of another, environment by environment.

    Raises:
        SettingsError: scipy is not installed, no environment is in both, or a side mixes algorithms or lengths of runs on one
            environment.
    """
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:
        raise SettingsError(f"comparing runs needs scipy: {pip_install('rlsdk-lab')}") from None
    ours, theirs = _by_env(a), _by_env(b)
    both = [env for env in ours if env in theirs]
    if not both:
        raise SettingsError(f"no environment is in both: {', '.join(ours)} and {', '.join(theirs)}")
    rows, pairs = [], [(means(ours[env]), means(theirs[env])) for env in both]
    for env, (x, y) in zip(both, pairs, strict=True):
        rows.append(
            Row(
                env=env,
                runs=(len(x), len(y)),
                means=(float(x.mean()), float(y.mean())),
                difference=difference(x, y),
                better=float(better(x, y)),
                p_value=float(mannwhitneyu(x, y, alternative="two-sided").pvalue),
            )
        )
    first, second = [x for x, _ in pairs], [y for _, y in pairs]
    return Comparison(
        rows=tuple(rows),
        improvement=improvement(first, second),
        p_value=chance(first, second),
        left_out=tuple(sorted(set(ours) ^ set(theirs))),
    )


def _by_env(scores: Sequence[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.env, []).append(score)
    for env, runs in found.items():
        if len(names := sorted({run.algorithm for run in runs})) > 1:
            raise SettingsError(f"one side has several algorithms on {env}: {', '.join(names)}; give a folder of one")
        if len({run.budget for run in runs}) > 1:
            raise SettingsError(f"one side has runs of different lengths on {env}; give a folder of one length")
    return found
