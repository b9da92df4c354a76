"""Update steps that several algorithms use."""

from rlsdk.updates.optimizer import FlatOptimizer
from rlsdk.updates.soft_actor_critic import EntropyCoefficient, critic_action_gradient
from rlsdk.updates.target_network import TargetNetwork

__all__ = ["EntropyCoefficient", "FlatOptimizer", "TargetNetwork", "critic_action_gradient"]
