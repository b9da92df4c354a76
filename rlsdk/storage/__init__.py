"""Files of agents and checkpoints: archives of tensors and JSON. Reading a file runs no code from it."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
