"""Trust region policy optimisation for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_trpo.agent import TRPO as TRPO

__version__ = "0.1.0"

__all__ = ["TRPO", "__version__"]

__getattr__, __dir__ = attach(__name__, {"TRPO": "rlsdk_trpo.agent"})
