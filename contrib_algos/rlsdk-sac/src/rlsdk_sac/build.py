"""Assembles the parts of SAC. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import noisy_behavior
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_soft_actor_critic, within_action_bounds
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import SoftActorCritic
from rlsdk_sac.algorithm import MinimumOfCritics
from rlsdk_sac.config import SACConfig


def build(context: BuildContext, config: SACConfig) -> Parts:
    """Build the parts of one SAC agent.

    Raises:
        UnsupportedSpaceError: the action space is not a bounded Box, or the policy does not fit the observations.
        SettingsError: `action_bounds` exceed the action space.
    """
    require_spaces(context, "SAC", actions=("Box",))
    context = within_action_bounds(context, config.action_bounds)
    actor, critics = build_soft_actor_critic(context, config)
    update = SoftActorCritic(actor, critics, MinimumOfCritics(), config, context.streams["update"])
    behavior = noisy_behavior(actor, context, config, warm_up=config.warms_up_uniformly)
    buffer = build_replay(context, config)
    return Parts(policy=actor, algorithm=update, plan=OffPolicyPlan.of(config), buffer=buffer, behavior=behavior)
