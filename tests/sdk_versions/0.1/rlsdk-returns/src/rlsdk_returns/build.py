"""Puts Returns together; the only place that chooses its parts."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.training import OnPolicyPlan

from rlsdk_returns.algorithm import Returns
from rlsdk_returns.config import ReturnsConfig
from rlsdk_returns.policy import build_policy

ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


def build(context: BuildContext, config: ReturnsConfig) -> Parts:
    """The parts of one agent.

    Raises:
        UnsupportedSpaceError: a space that is not supported.
    """
    require_spaces(context, "Returns", actions=ACTIONS, observations=OBSERVATIONS)
    policy = build_policy(context, config)
    algorithm = Returns(policy, config, context.streams["update"])
    return Parts(policy=policy, algorithm=algorithm, plan=OnPolicyPlan.of(config, context))
