"""Suites of algorithms and environments, searches for hyper-parameters, comparisons, curves and videos."""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
