"""Assembles the parts of A2C. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk.training import OnPolicyPlan
from rlsdk_a2c.algorithm import AdvantageActorCritic
from rlsdk_a2c.config import A2CConfig


def build(context: BuildContext, config: A2CConfig) -> Parts:
    """Build the parts of one A2C agent.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: gSDE without a Box action.
    """
    require_spaces(context, "A2C")
    memory, every = memory_of(config.policy), config.sde_sample_freq
    network = build_actor_critic(context, config, memory=memory, use_sde=config.use_sde, sde_every=every)
    update = AdvantageActorCritic(network, config, context.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))
