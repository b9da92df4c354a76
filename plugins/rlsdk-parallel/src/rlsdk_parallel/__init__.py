"""Parallel work: collectors with copies of the policy, and executors that use processes and pools.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_parallel.environments import CollectorsVectorEnv as CollectorsVectorEnv
    from rlsdk_parallel.environments import make_collectors as make_collectors

__version__ = "0.1.0"
__all__ = ["CollectorsVectorEnv", "make_collectors"]

HOMES = dict.fromkeys(__all__, "rlsdk_parallel.environments")
__getattr__, __dir__ = attach(__name__, HOMES)
