"""Suites of algorithms and environments, searches for hyper-parameters, comparisons, curves and videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_lab.benchmark import Bench as Bench
    from rlsdk_lab.benchmark import bench as bench
    from rlsdk_lab.comparison import Comparison as Comparison
    from rlsdk_lab.comparison import compare as compare
    from rlsdk_lab.profiling import profiled as profiled
    from rlsdk_lab.ranges import Range as Range
    from rlsdk_lab.ranges import search_space as search_space
    from rlsdk_lab.rl_zoo import rl_zoo_preset as rl_zoo_preset
    from rlsdk_lab.scores import Score as Score
    from rlsdk_lab.scores import scores_below as scores_below
    from rlsdk_lab.seeds_command import run_seeds as run_seeds
    from rlsdk_lab.suite import Cell as Cell
    from rlsdk_lab.suite import Suite as Suite
    from rlsdk_lab.suite import load_suite as load_suite
    from rlsdk_lab.suite import suites as suites
    from rlsdk_lab.trials import Tuning as Tuning
    from rlsdk_lab.tuning import tune as tune

__version__ = "0.1.0"
HOMES = {
    **dict.fromkeys(("Bench", "bench"), "rlsdk_lab.benchmark"),
    **dict.fromkeys(("Comparison", "compare"), "rlsdk_lab.comparison"),
    **dict.fromkeys(("Range", "search_space"), "rlsdk_lab.ranges"),
    **dict.fromkeys(("Score", "scores_below"), "rlsdk_lab.scores"),
    **dict.fromkeys(("Cell", "Suite", "load_suite", "suites"), "rlsdk_lab.suite"),
    "profiled": "rlsdk_lab.profiling",
    "rl_zoo_preset": "rlsdk_lab.rl_zoo",
    "run_seeds": "rlsdk_lab.seeds_command",
    "Tuning": "rlsdk_lab.trials",
    "tune": "rlsdk_lab.tuning",
}
__all__ = [
    "Bench",
    "Cell",
    "Comparison",
    "Range",
    "Score",
    "Suite",
    "Tuning",
    "bench",
    "compare",
    "load_suite",
    "profiled",
    "rl_zoo_preset",
    "run_seeds",
    "scores_below",
    "search_space",
    "suites",
    "tune",
]
__getattr__, __dir__ = attach(__name__, HOMES)
