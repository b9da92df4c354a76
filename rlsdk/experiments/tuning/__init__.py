"""Search for hyper-parameters (extra `tune`: Optuna searches)."""

from rlsdk.experiments.tuning.space import Range, search_space
from rlsdk.experiments.tuning.study import Tuning, tune

__all__ = ["Range", "Tuning", "search_space", "tune"]
