"""Environments as rlsdk sees them. Only this package knows gymnasium. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk.environments.gymnasium_adapter import connect as connect
    from rlsdk.environments.gymnasium_adapter import make_vec_env as make_vec_env
    from rlsdk.environments.gymnasium_adapter import to_gymnasium as to_gymnasium
    from rlsdk.environments.gymnasium_adapter import to_space as to_space

__all__ = ["connect", "make_vec_env", "to_gymnasium", "to_space"]

_ADAPTER = "rlsdk.environments.gymnasium_adapter"
__getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, _ADAPTER))
