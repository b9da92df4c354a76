"""Assembles the parts of TD3. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import noisy_behavior
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_deterministic_actor_critic
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import DeterministicActorCritic
from rlsdk_td3.config import TD3Config


def build(context: BuildContext, config: TD3Config) -> Parts:
    """Build the parts of one TD3 agent.

    Raises:
        UnsupportedSpaceError: the action space is not a bounded Box, or the policy does not fit the observations.
    """
    require_spaces(context, "TD3", actions=("Box",))
    actor, critics = build_deterministic_actor_critic(context, config)
    update = DeterministicActorCritic(actor, critics, config, context.streams["update"])
    behavior, buffer = noisy_behavior(actor, context, config), build_replay(context, config)
    return Parts(policy=actor, algorithm=update, plan=OffPolicyPlan.of(config), buffer=buffer, behavior=behavior)
