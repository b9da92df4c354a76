"""Assembles the parts of ARS. No other module chooses them."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.settings import widths
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_ars.config import ARSConfig
from rlsdk_ars.population import PopulationPlan
from rlsdk_ars.search_policy import build_search_policy

HIDDEN = (64, 64)
ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


def build(context: BuildContext, config: ARSConfig) -> Parts:
    """Build the parts of one ARS agent.

    Raises:
        UnsupportedSpaceError: the actions are Dict or Tuple. SettingsError: `activation_fn` has no numpy version.
    """
    require_spaces(context, "ARS", actions=ACTIONS)
    networks, linear = config.policy_kwargs, config.policy == "LinearPolicy"
    hidden = () if linear else widths(networks.net_arch, "pi", HIDDEN, names=("pi",))
    squash = not linear and networks.squash_output
    bias = not linear if networks.with_bias is None else networks.with_bias
    policy, make_act = build_search_policy(context, networks, hidden, bias=bias, squash=squash)
    return Parts(
        policy=policy,
        algorithm=RandomSearch(policy, config, context.streams["update"]),
        plan=PopulationPlan(make_act, config.n_eval_episodes, config.alive_bonus_offset),
    )
