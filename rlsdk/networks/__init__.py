"""Parts of networks: encoders of observations, multi-layer perceptrons, critics, actors, flat parameter storage."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
