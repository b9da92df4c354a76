"""Small trained agents: `rlsdk.zoo.load("tqc/Pendulum-v1")`. The agents are files in `agents/`; `rlsdk_zoo.make` makes them."""

__version__ = "0.1.0"
