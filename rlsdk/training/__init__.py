"""Training loops (plans) and the collectors they use. A plan has no access to logs, files or callbacks."""

from rlsdk.interfaces import Training
from rlsdk.records import Cursor
from rlsdk.training.collector import LocalCollector
from rlsdk.training.groups import begin_acting, group_generators, join_rollouts, split_acting
from rlsdk.training.no_collector import NoCollector
from rlsdk.training.off_policy import OffPolicyPlan
from rlsdk.training.offline import OfflinePlan
from rlsdk.training.on_policy import OnPolicyPlan
from rlsdk.training.population import PopulationPlan
from rlsdk.training.replay_updates import ReplayUpdates

__all__ = [
    "Cursor",
    "LocalCollector",
    "NoCollector",
    "OffPolicyPlan",
    "OfflinePlan",
    "OnPolicyPlan",
    "PopulationPlan",
    "ReplayUpdates",
    "Training",
    "begin_acting",
    "group_generators",
    "join_rollouts",
    "split_acting",
]
