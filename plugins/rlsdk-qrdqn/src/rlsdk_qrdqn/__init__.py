"""Quantile-regression DQN for rlsdk. The class is imported on first use, so that listing plugins costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk_qrdqn.agent import QRDQN as QRDQN
    from rlsdk_qrdqn.policies import QRDQNPolicy as QRDQNPolicy

__version__ = "0.1.0"

__all__ = ["QRDQN", "QRDQNPolicy", "__version__"]

__getattr__, __dir__ = attach(__name__, {"QRDQN": "rlsdk_qrdqn.agent", "QRDQNPolicy": "rlsdk_qrdqn.policies"})
