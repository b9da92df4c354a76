"""Assembles the parts of behavior cloning. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk_bc.cloning import Cloning
from rlsdk_bc.config import BCConfig
from rlsdk_bc.data import Data
from rlsdk_bc.plan import CloningPlan
from rlsdk_datasets import OfflinePlan, RecordedSequences, RecordedTransitions


def build(context: BuildContext, config: BCConfig) -> Parts:
    """Build the parts of one agent for behavior cloning.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations.
    """
    require_spaces(context, "BC")
    remembers = memory_of(config.policy)
    policy = build_actor_critic(context, config, memory=remembers)
    length = config.sequence_length if remembers else None
    buffer = _recorded(context, config, length)
    data = None if buffer is None else Data(buffer, config.gamma, context.reward_normalizer, length)
    algorithm = Cloning(policy, config, data, context)
    plan = CloningPlan(OfflinePlan(config.batch_size), config.patience)
    return Parts(policy=policy, algorithm=algorithm, plan=plan, buffer=buffer)


def _recorded(
    context: BuildContext, config: BCConfig, length: int | None
) -> RecordedTransitions | RecordedSequences | None:
    if config.dataset is None:
        return None
    share = 1.0 - config.held_out
    if length is None:
        return RecordedTransitions(config.dataset, context, gamma=config.gamma, share=share)
    return RecordedSequences(config.dataset, context, length=length, gamma=config.gamma, share=share)
