"""Immutable action distributions. Log-probabilities and entropies are summed over action dimensions."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
