"""Outputs for metrics. A sink derives from `Sink`, or is an object with `write(step, values)` and `close()`."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
