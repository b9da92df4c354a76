"""Suites of runs over algorithms, environments and seeds, with statistics that say how sure a result is."""

from rlsdk.suites.aggregate import Estimate, better, difference, estimate, improvement, iqm, profile
from rlsdk.suites.bench import Bench, bench
from rlsdk.suites.compare import Comparison, compare
from rlsdk.suites.results import Score, scores_below
from rlsdk.suites.suite import Cell, Suite, load_suite, suites

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
