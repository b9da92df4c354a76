"""Training loops (plans) and the collectors they use. A plan has no access to logs, files or callbacks."""

from typing import TYPE_CHECKING

from rlsdk.interfaces import Training
from rlsdk.records import Cursor
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.training.collector import LocalCollector, begin_acting, group_generators, join_rollouts, split_acting
from rlsdk.training.off_policy import OffPolicyPlan, ReplayUpdates
from rlsdk.training.on_policy import OnPolicyPlan
from rlsdk.training.population import PopulationPlan
from rlsdk.training.trained_agent import DrivenAgent

__all__ = [
    "Cursor",
    "DrivenAgent",
    "LocalCollector",
    "OffPolicyPlan",
    "OnPolicyPlan",
    "PopulationPlan",
    "ReplayUpdates",
    "Training",
    "begin_acting",
    "group_generators",
    "join_rollouts",
    "split_acting",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
