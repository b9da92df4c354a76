"""Single runs, sweeps over seeds, suites of algorithms and environments, searches for hyper-parameters, and their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.experiments.benchmark import Bench as Bench
    from rlsdk.experiments.benchmark import bench as bench
    from rlsdk.experiments.comparison import Comparison as Comparison
    from rlsdk.experiments.comparison import compare as compare
    from rlsdk.experiments.metrics_file import read_metric as read_metric
    from rlsdk.experiments.ranges import Range as Range
    from rlsdk.experiments.ranges import search_space as search_space
    from rlsdk.experiments.rl_zoo import rl_zoo_preset as rl_zoo_preset
    from rlsdk.experiments.scores import Score as Score
    from rlsdk.experiments.scores import scores_below as scores_below
    from rlsdk.experiments.suite import Cell as Cell
    from rlsdk.experiments.suite import Suite as Suite
    from rlsdk.experiments.suite import load_suite as load_suite
    from rlsdk.experiments.suite import suites as suites
    from rlsdk.experiments.trials import Tuning as Tuning
    from rlsdk.experiments.tuning import tune as tune

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
    "read_metric",
    "rl_zoo_preset",
    "scores_below",
    "search_space",
    "suites",
    "tune",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        **dict.fromkeys(("Bench", "bench"), "rlsdk.experiments.benchmark"),
        **dict.fromkeys(("Comparison", "compare"), "rlsdk.experiments.comparison"),
        "read_metric": "rlsdk.experiments.metrics_file",
        **dict.fromkeys(("Range", "search_space"), "rlsdk.experiments.ranges"),
        "rl_zoo_preset": "rlsdk.experiments.rl_zoo",
        **dict.fromkeys(("Score", "scores_below"), "rlsdk.experiments.scores"),
        **dict.fromkeys(("Cell", "Suite", "load_suite", "suites"), "rlsdk.experiments.suite"),
        "Tuning": "rlsdk.experiments.trials",
        "tune": "rlsdk.experiments.tuning",
    },
)
