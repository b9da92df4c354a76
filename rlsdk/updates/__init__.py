"""Update steps that several algorithms use."""

from typing import TYPE_CHECKING

from rlsdk.kernels.protocol import Evaluation, LossTerms, Minibatches
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.updates.clipped_policy import ClippedPolicy, evaluator_of, policy_loss_of, policy_steps_of
from rlsdk.updates.continuous import DeterministicActorCritic, EntropyCoefficient, SoftActorCritic, TargetNetwork
from rlsdk.updates.minibatches import PolicyBatch, in_order, policy_batch, recorded_batch, shuffled
from rlsdk.updates.optimizer import FlatOptimizer, adam_arguments
from rlsdk.updates.q_learning import QLearning

__all__ = [
    "ClippedPolicy",
    "DeterministicActorCritic",
    "EntropyCoefficient",
    "Evaluation",
    "FlatOptimizer",
    "LossTerms",
    "Minibatches",
    "PolicyBatch",
    "QLearning",
    "SoftActorCritic",
    "TargetNetwork",
    "adam_arguments",
    "evaluator_of",
    "in_order",
    "policy_batch",
    "policy_loss_of",
    "policy_steps_of",
    "recorded_batch",
    "shuffled",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
