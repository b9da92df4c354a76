"""Functions that make an agent from the id of its algorithm or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from rlsdk.agent.agent import Agent
from rlsdk.agent.classes import class_of
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry import load as load_plugin


def agent_class(spec: AlgorithmSpec) -> type[Agent]:
    """The agent class that the plugin defines, or a generated one if it defines none."""
    return class_of(spec, Agent)


def make(algorithm: str, *, env: object, policy: str | None = None, **settings: object) -> Agent:
    """Make an agent from the id of its algorithm: `rlsdk.make("tqc", env="Pendulum-v1", learning_rate=1e-3)`.

    Raises:
        PluginError: the algorithm is unknown or its plugin is broken. SettingsError, EnvironmentFault: as for the agent class.
    """
    spec = load_plugin(algorithm)
    return agent_class(spec)(policy or spec.policies[0], env, **settings)


def load(path: str | Path | IO[bytes], env: object = None, device: str = "auto", **kwargs: Any) -> Agent:
    """Load an agent of any algorithm from a file. The arguments are those of `Agent.load`."""
    return Agent.load(path, env, device, **kwargs)
