"""Parallel work: environments in processes, collectors with copies of the policy, and executors that use processes and pools.

Names are imported at their first use.
"""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
