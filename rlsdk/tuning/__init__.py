"""Search for hyper-parameters (extra `tune`: Optuna searches)."""

from rlsdk.tuning.space import Range, search_space
from rlsdk.tuning.study import Tuning, tune

__all__ = ["Range", "Tuning", "search_space", "tune"]
