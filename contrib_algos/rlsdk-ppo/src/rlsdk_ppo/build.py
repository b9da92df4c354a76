"""Assembles the parts of PPO. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import ClippedPolicy
from rlsdk_ppo.config import PPOConfig


def build(context: BuildContext, config: PPOConfig) -> Parts:
    """Build the parts of one PPO agent.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: gSDE without a Box action.
    """
    require_spaces(context, "PPO")
    memory, every = memory_of(config.policy), config.sde_sample_freq
    network = build_actor_critic(context, config, memory=memory, use_sde=config.use_sde, sde_every=every)
    update = ClippedPolicy(network, config, context.streams["update"], num_envs=context.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))
