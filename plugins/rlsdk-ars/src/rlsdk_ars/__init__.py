"""Augmented random search for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_ars.agent import ARS as ARS
    from rlsdk_ars.async_eval import AsyncEval as AsyncEval
    from rlsdk_ars.policies import ARSLinearPolicy as ARSLinearPolicy
    from rlsdk_ars.policies import ARSPolicy as ARSPolicy

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__, AsyncEval="rlsdk_ars.async_eval")
