"""Parallel work: collectors with copies of the policy, and executors that use processes and pools.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_parallel.environments import CollectorsVectorEnv as CollectorsVectorEnv
    from rlsdk_parallel.environments import ExecutorVectorEnv as ExecutorVectorEnv
    from rlsdk_parallel.environments import make_collectors as make_collectors
    from rlsdk_parallel.executors import FuturesExecutor as FuturesExecutor
    from rlsdk_parallel.executors import Processes as Processes

__version__ = "0.1.0"
__all__ = ["CollectorsVectorEnv", "ExecutorVectorEnv", "FuturesExecutor", "Processes", "make_collectors"]

HOMES = {
    **dict.fromkeys(("CollectorsVectorEnv", "ExecutorVectorEnv", "make_collectors"), "rlsdk_parallel.environments"),
    **dict.fromkeys(("FuturesExecutor", "Processes"), "rlsdk_parallel.executors"),
}
__getattr__, __dir__ = attach(__name__, HOMES)
