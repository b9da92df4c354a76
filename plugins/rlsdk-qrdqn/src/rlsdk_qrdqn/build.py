"""Assembles the parts of QRDQN. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_discrete_value_policy
from rlsdk.training import OffPolicyPlan
from rlsdk_qrdqn.algorithm import quantile_regression
from rlsdk_qrdqn.config import QRDQNConfig


def build(context: BuildContext, config: QRDQNConfig) -> Parts:
    """Build the parts of one QRDQN agent.

    Raises:
        UnsupportedSpaceError: the actions are neither Discrete nor MultiDiscrete, or the policy does not fit the observations.
    """
    require_spaces(context, "QRDQN", actions=("Discrete", "MultiDiscrete"))
    policy = build_discrete_value_policy(context, config, config.policy_kwargs.n_quantiles)
    return Parts(
        policy=policy,
        algorithm=quantile_regression(policy, config, context.num_envs),
        plan=OffPolicyPlan.of(config),
        buffer=build_replay(context, config),
        behavior=UniformWarmUp(policy, context.action_space, config.learning_starts, context.num_envs),
    )
