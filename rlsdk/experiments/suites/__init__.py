"""Suites of runs over algorithms, environments and seeds, with confidence intervals."""

from rlsdk.evaluation.aggregate import Estimate, better, difference, estimate, improvement, iqm, profile
from rlsdk.experiments.suites.bench import Bench, bench
from rlsdk.experiments.suites.compare import Comparison, compare
from rlsdk.experiments.suites.results import Score, scores_below
from rlsdk.experiments.suites.suite import Cell, Suite, load_suite, suites

__all__ = [
    "Bench",
    "Cell",
    "Comparison",
    "Estimate",
    "Score",
    "Suite",
    "bench",
    "better",
    "compare",
    "difference",
    "estimate",
    "improvement",
    "iqm",
    "load_suite",
    "profile",
    "scores_below",
    "suites",
]
