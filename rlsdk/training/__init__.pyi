from rlsdk.training.collector import LocalCollector as LocalCollector
from rlsdk.training.collector import begin_acting as begin_acting
from rlsdk.training.collector import group_generators as group_generators
from rlsdk.training.collector import split_acting as split_acting
from rlsdk.training.off_policy import OffPolicyPlan as OffPolicyPlan
from rlsdk.training.off_policy import ReplayUpdates as ReplayUpdates
from rlsdk.training.on_policy import OnPolicyPlan as OnPolicyPlan
from rlsdk.training.trained_agent import DrivenAgent as DrivenAgent
