"""Assembles the parts of MaskablePPO. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import ClippedPolicy
from rlsdk_maskable_ppo.config import MaskablePPOConfig

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(context: BuildContext, config: MaskablePPOConfig) -> Parts:
    """Build the parts of one MaskablePPO agent.

    Raises:
        UnsupportedSpaceError: the action space cannot be masked, such as a Box, or the policy does not fit the observations.
    """
    require_spaces(context, "MaskablePPO", actions=ACTIONS)
    network = build_actor_critic(context, config)
    network.use_masks = config.use_masking
    update = ClippedPolicy(network, config, context.streams["update"], num_envs=context.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))
