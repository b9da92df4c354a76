"""Assembles the parts of RecurrentPPO. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import ClippedPolicy
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig


def build(context: BuildContext, config: RecurrentPPOConfig) -> Parts:
    """Build the parts of one RecurrentPPO agent. The name of the policy selects LSTM or GRU.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: gSDE without a Box action.
    """
    require_spaces(context, "RecurrentPPO")
    memory, every = memory_of(config.policy), config.sde_sample_freq
    network = build_actor_critic(context, config, memory=memory, use_sde=config.use_sde, sde_every=every)
    update = ClippedPolicy(
        network,
        config,
        context.streams["update"],
        cut_every=config.sequence_length,
        burn_in=config.burn_in,
        num_envs=context.num_envs,
    )
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))
