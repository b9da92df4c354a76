"""Augmented random search for rlsdk, and the loop and the policy of population methods, for other algorithms of the kind.

The names are imported on first use, so that listing plugins is fast.
"""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_ars.agent import ARS as ARS
    from rlsdk_ars.async_eval import AsyncEval as AsyncEval
    from rlsdk_ars.policies import ARSLinearPolicy as ARSLinearPolicy
    from rlsdk_ars.policies import ARSPolicy as ARSPolicy
    from rlsdk_ars.population import PopulationPlan as PopulationPlan
    from rlsdk_ars.population import Proposer as Proposer
    from rlsdk_ars.population import Scored as Scored
    from rlsdk_ars.search_policy import SearchPolicy as SearchPolicy
    from rlsdk_ars.search_policy import build_search_policy as build_search_policy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__,
    AsyncEval="rlsdk_ars.async_eval",
    **dict.fromkeys(("PopulationPlan", "Proposer", "Scored"), "rlsdk_ars.population"),
    **dict.fromkeys(("SearchPolicy", "build_search_policy"), "rlsdk_ars.search_policy"),
)
