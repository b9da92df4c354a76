"""Augmented random search for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_ars.agent import ARS as ARS
    from rlsdk_ars.async_eval import AsyncEval as AsyncEval
    from rlsdk_ars.policies import ARSLinearPolicy as ARSLinearPolicy
    from rlsdk_ars.policies import ARSPolicy as ARSPolicy

__version__ = "0.1.0"

__all__ = ["ARS", "ARSLinearPolicy", "ARSPolicy", "AsyncEval", "__version__"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "ARS": "rlsdk_ars.agent",
        "ARSLinearPolicy": "rlsdk_ars.policies",
        "ARSPolicy": "rlsdk_ars.policies",
        "AsyncEval": "rlsdk_ars.async_eval",
    },
)
