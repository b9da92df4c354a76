"""Update steps that several algorithms use."""

from typing import TYPE_CHECKING

from rlsdk.kernels.protocol import Evaluation, LossTerms, Minibatches
from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.updates.clipped_policy import ClippedPolicy
from rlsdk.updates.deterministic_actor_critic import DeterministicActorCritic
from rlsdk.updates.evaluation import evaluator_of
from rlsdk.updates.minibatches import PolicyBatch, in_order, policy_batch, shuffled
from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.optimizer_choice import adam_arguments
from rlsdk.updates.policy_loss import policy_loss_of, policy_steps_of
from rlsdk.updates.q_learning import QLearning
from rlsdk.updates.recorded_batch import recorded_batch
from rlsdk.updates.soft_actor_critic import EntropyCoefficient, SoftActorCritic
from rlsdk.updates.target_network import TargetNetwork

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
