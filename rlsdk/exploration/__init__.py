"""Exploration: action noise, uniformly random actions, epsilon-greedy actions and state-dependent noise."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
