"""Executors run independent items of work: in this process, or in an executor of a package.

rlsdk-parallel has `processes` and pools, rlsdk-ray has `ray`. Here are also the processes that environments are stepped in.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
