"""Assembles the parts of ACKTR. No other module chooses them."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk.spaces import Box
from rlsdk.training import OnPolicyPlan
from rlsdk_acktr.algorithm import KroneckerActorCritic
from rlsdk_acktr.config import ACKTRConfig


def build(context: BuildContext, config: ACKTRConfig) -> Parts:
    """Build the parts of one ACKTR agent.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: two
        settings contradict each other.
    """
    require_spaces(context, "ACKTR")
    if config.policy_kwargs.optimizer_class is not None and config.momentum != 0.9:
        raise SettingsError(
            f"momentum = {config.momentum} is of SGD, but policy_kwargs gives optimizer_class; leave one out, or give"
            " optimizer_kwargs"
        )
    if config.normalize_advantage and config.n_steps * context.num_envs < 2:
        raise SettingsError(
            "n_steps = 1 with 1 environment gives one step per rollout, whose advantage cannot be normalized; raise n_steps, or"
            " set normalize_advantage = false"
        )
    network = build_actor_critic(context, config, memory=memory_of(config.policy))
    update = KroneckerActorCritic(
        network, config, context.streams["update"], continuous=isinstance(context.action_space, Box)
    )
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan(config.n_steps))
