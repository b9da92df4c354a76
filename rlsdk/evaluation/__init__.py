"""Evaluation of agents by playing episodes. Public names are imported on first use."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
