"""Toy tasks, Atari games, wrappers, and vector environments in C, torch and envpool.

Importing this package registers the ids `rlsdk/...` with gymnasium. rlsdk finds them without an import.
"""

from rlsdk.runtime import attach
from rlsdk_envs.registration import register as _register

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
_register()
