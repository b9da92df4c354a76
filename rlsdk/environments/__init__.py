"""Environments: adapters to gymnasium and vector environments. Public names are imported on first use."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__, {"check_env": "rlsdk-envs"})
