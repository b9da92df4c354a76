"""Data sets of recorded episodes: files, and what algorithms learn from them with. Names are imported on first use."""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
