"""Assembles the parts of PQN. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.training import OnPolicyPlan
from rlsdk_pqn.algorithm import ParallelQLearning
from rlsdk_pqn.config import PQNConfig
from rlsdk_pqn.networks import build_policy


def build(context: BuildContext, config: PQNConfig) -> Parts:
    """Build the parts of one PQN agent.

    Raises:
        UnsupportedSpaceError: the actions are neither Discrete nor MultiDiscrete, or the policy does not fit the observations.
    """
    require_spaces(context, "PQN", actions=("Discrete", "MultiDiscrete"))
    policy = build_policy(context, config)
    update = ParallelQLearning(policy, config, context.streams["update"])
    return Parts(policy=policy, algorithm=update, plan=OnPolicyPlan(config.n_steps))
