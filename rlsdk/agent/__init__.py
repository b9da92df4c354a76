"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
