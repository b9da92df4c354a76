"""rlsdk: reinforcement-learning algorithms as independently installable plugins on a small typed core.

Public names are loaded on first use; importing this package imports neither torch nor any plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.agent import Agent, load, make
    from rlsdk.registry import algorithms, register

__version__ = "0.1.0"

__all__ = ["Agent", "__version__", "algorithms", "load", "make", "register"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "Agent": "rlsdk.agent",
        "load": "rlsdk.agent",
        "make": "rlsdk.agent",
        "algorithms": "rlsdk.registry",
        "register": "rlsdk.registry",
    },
)
