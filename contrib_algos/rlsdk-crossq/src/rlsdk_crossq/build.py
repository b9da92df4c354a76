"""Assembles the parts of CrossQ. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import noisy_behavior
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_soft_actor_critic, within_action_bounds
from rlsdk.training import OffPolicyPlan
from rlsdk_crossq.algorithm import CrossQUpdate
from rlsdk_crossq.config import CrossQConfig
from rlsdk_crossq.layers import normalize


def build(context: BuildContext, config: CrossQConfig) -> Parts:
    """Build the parts of one CrossQ agent.

    Raises:
        UnsupportedSpaceError: the action space is not a bounded Box, or the policy does not fit the observations.
        SettingsError: `action_bounds` exceed the action space.
    """
    require_spaces(context, "CrossQ", actions=("Box",))
    context = within_action_bounds(context, config.action_bounds)
    actor, critics = build_soft_actor_critic(context, config)
    if config.policy_kwargs.batch_norm:
        normalize(actor, critics, config.policy_kwargs)
    update = CrossQUpdate(actor.to(context.device), critics.to(context.device), config, context.streams["update"])
    behavior = noisy_behavior(actor, context, config, warm_up=config.warms_up_uniformly)
    buffer = build_replay(context, config)
    return Parts(policy=actor, algorithm=update, plan=OffPolicyPlan.of(config), buffer=buffer, behavior=behavior)
