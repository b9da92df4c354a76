"""Small trained agents: `rlsdk.zoo.load("tqc/Pendulum-v1")`. `rlsdk_zoo.make` trains them and writes files to
`agents/`."""

__version__ = "0.1.0"
