"""Import, export and recording of agents and data. Public names are imported on first use."""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
