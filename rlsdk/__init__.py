"""rlsdk: train reinforcement-learning agents with PyTorch. Algorithms are packages on a small typed core.

Public names are loaded on first use; importing this package imports neither torch nor any plugin.
"""

from rlsdk.runtime.lazy import attach

__version__ = "0.1.0"

__getattr__, __dir__ = attach(__name__, __file__)
