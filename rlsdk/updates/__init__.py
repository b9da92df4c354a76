"""Update steps that several algorithms use."""

from rlsdk.updates.clipped_policy import ClippedPolicy
from rlsdk.updates.evaluation import Evaluation, evaluator_of
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.optimizer_choice import adam_arguments
from rlsdk.updates.soft_actor_critic import EntropyCoefficient
from rlsdk.updates.target_network import TargetNetwork

__all__ = [
    "ClippedPolicy",
    "EntropyCoefficient",
    "Evaluation",
    "FlatOptimizer",
    "TargetNetwork",
    "adam_arguments",
    "evaluator_of",
]
