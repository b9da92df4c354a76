"""Small trained agents: `rlsdk_zoo.load("tqc/Pendulum-v1")`. `rlsdk_zoo.make` trains them and writes files to
`agents/`. Public names are imported on first use, so that listing imports no torch."""

from rlsdk.runtime import attach

__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__)
