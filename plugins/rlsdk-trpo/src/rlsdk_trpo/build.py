"""Assembles the parts of TRPO. No other module chooses them."""

from __future__ import annotations

from math import prod

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic
from rlsdk.spaces import Box, MultiBinary, Space, shape_of
from rlsdk.training import OnPolicyPlan
from rlsdk_trpo.algorithm import TrustRegionPolicy
from rlsdk_trpo.config import TRPOConfig


def build(context: BuildContext, config: TRPOConfig) -> Parts:
    """Build the parts of one TRPO agent.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: gSDE without a Box action.
    """
    require_spaces(context, "TRPO")
    network = build_actor_critic(context, config, use_sde=config.use_sde, sde_every=config.sde_sample_freq)
    parts = _dimensions(context.action_space) if config.kl_per_dimension else 1
    streams, envs = context.streams, context.num_envs
    update = TrustRegionPolicy(network, config, streams["update"], kl_parts=parts, num_envs=envs)
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, context))


def _dimensions(space: Space) -> int:
    """The number of dimensions of a Box or MultiBinary action; 1 for other actions."""
    return prod(shape_of(space)) if isinstance(space, Box | MultiBinary) else 1
