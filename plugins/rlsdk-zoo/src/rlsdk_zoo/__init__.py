"""Small trained agents: `rlsdk_zoo.load("tqc/Pendulum-v1")`. `rlsdk_zoo.make` trains them and writes files to
`agents/`. Public names are imported on first use, so that listing imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_zoo.installed import ZooAgent as ZooAgent
    from rlsdk_zoo.installed import agents as agents
    from rlsdk_zoo.installed import find as find
    from rlsdk_zoo.installed import load as load

__version__ = "0.1.0"
__all__ = ["ZooAgent", "agents", "find", "load"]
__getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, "rlsdk_zoo.installed"))
