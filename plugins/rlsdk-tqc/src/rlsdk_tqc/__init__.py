"""Truncated quantile critics for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_tqc.agent import TQC as TQC
    from rlsdk_tqc.policies import TQCPolicy as TQCPolicy

__version__ = "0.1.0"

__all__ = ["TQC", "TQCPolicy", "__version__"]

__getattr__, __dir__ = attach(__name__, {"TQC": "rlsdk_tqc.agent", "TQCPolicy": "rlsdk_tqc.policies"})
