"""Hyper-parameters of algorithms: config classes (attrs), strict reading, and their description. Imports no torch."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
