"""Assembles the parts of DQN. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.math import smooth_l1
from rlsdk.networks import build_discrete_value_policy
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import QLearning
from rlsdk_dqn.config import DQNConfig


def build(context: BuildContext, config: DQNConfig) -> Parts:
    """Build the parts of one DQN agent: one value per action, learned with the Huber loss (doi:10.1038/nature14236).

    Raises:
        UnsupportedSpaceError: the actions are neither Discrete nor MultiDiscrete, or the policy does not fit the observations.
    """
    require_spaces(context, "DQN", actions=("Discrete", "MultiDiscrete"))
    policy = build_discrete_value_policy(context, config)
    warm_up = UniformWarmUp(policy, context.action_space, config.learning_starts, context.num_envs)
    update = QLearning(policy, config, smooth_l1, num_envs=context.num_envs)
    buffer = build_replay(context, config)
    return Parts(policy=policy, algorithm=update, plan=OffPolicyPlan.of(config), buffer=buffer, behavior=warm_up)
