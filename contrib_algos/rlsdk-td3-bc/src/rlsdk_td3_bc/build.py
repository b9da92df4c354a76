"""Assembles the parts of TD3+BC. No other module chooses them."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_deterministic_actor_critic
from rlsdk_datasets import OfflinePlan, RecordedTransitions
from rlsdk_td3_bc.algorithm import CloningActorCritic
from rlsdk_td3_bc.config import TD3BCConfig


def build(context: BuildContext, config: TD3BCConfig) -> Parts:
    """Build the parts of one TD3+BC agent.

    Raises:
        UnsupportedSpaceError: the action space is not a bounded Box, or the policy does not fit the observations.
        SettingsError: there is no data set.
    """
    require_spaces(context, "TD3+BC", actions=("Box",))
    if config.dataset is None:
        raise SettingsError("td3-bc learns from recorded episodes: give dataset=PATH, or --dataset FILE")
    actor, critics = build_deterministic_actor_critic(context, config)
    update = CloningActorCritic(actor, critics, config, context.streams["update"])
    update.alpha = config.alpha
    buffer = RecordedTransitions(config.dataset, context, gamma=config.gamma)
    return Parts(policy=actor, algorithm=update, plan=OfflinePlan(config.batch_size), buffer=buffer)
