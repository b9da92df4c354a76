"""Assembles the parts of discrete SAC. No other module chooses them."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.training import OffPolicyPlan
from rlsdk_discrete_sac.algorithm import DiscreteSoftActorCritic
from rlsdk_discrete_sac.config import DiscreteSACConfig
from rlsdk_discrete_sac.networks import build_networks


def build(context: BuildContext, config: DiscreteSACConfig) -> Parts:
    """Build the parts of one discrete SAC agent.

    Raises:
        UnsupportedSpaceError: the actions are neither Discrete nor MultiDiscrete, or the policy does not fit the observations.
        SettingsError: `ent_coef` is not an entropy coefficient, or the networks do not fit the spaces.
    """
    require_spaces(context, "DiscreteSAC", actions=("Discrete", "MultiDiscrete"))
    actor, critics = build_networks(context, config)
    update = DiscreteSoftActorCritic(actor, critics, config, context.device)
    warm_up = UniformWarmUp(actor, context.action_space, config.learning_starts, context.num_envs)
    buffer = build_replay(context, config)
    return Parts(policy=actor, algorithm=update, plan=OffPolicyPlan.of(config), buffer=buffer, behavior=warm_up)
