"""Callbacks: objects whose methods are called during training. All their intervals are counted in environment steps."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
