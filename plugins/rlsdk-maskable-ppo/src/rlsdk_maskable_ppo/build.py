"""Puts MaskablePPO together; the only place that chooses its parts."""

from __future__ import annotations

from rlsdk.networks import build_actor_critic
from rlsdk.parts import Facts, OnPolicyPlan, Parts, require_spaces
from rlsdk.updates import ClippedPolicy
from rlsdk_maskable_ppo.config import MaskablePPOConfig

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(facts: Facts, config: MaskablePPOConfig) -> Parts:
    """The parts of one MaskablePPO agent.

    Raises:
        UnsupportedSpaceError: the action space has nothing to mask, or the policy does not fit the observations.
    """
    require_spaces(facts, "MaskablePPO", actions=ACTIONS, observations=OBSERVATIONS)
    network = build_actor_critic(facts, config)
    network.use_masks = config.use_masking
    update = ClippedPolicy(network, config, facts.streams["update"], num_envs=facts.num_envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, facts))
