"""Making an agent by the id of its algorithm, or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from rlsdk.agent.agent import Agent
from rlsdk.agent.classes import class_of
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry import load as load_plugin


def agent_class(spec: AlgorithmSpec) -> type[Agent]:
    """The plugin's own class, or one made for a spec that names none."""
    return class_of(spec, Agent)


def make(algorithm: str, *, env: object, policy: str | None = None, **settings: object) -> Agent:
    """An agent by the id of its algorithm: `rlsdk.make("tqc", env="Pendulum-v1", learning_rate=1e-3)`.

    Raises:
        PluginError: unknown or broken algorithm. SettingsError, EnvironmentFault: as the class itself.
    """
    spec = load_plugin(algorithm)
    return agent_class(spec)(policy or spec.policies[0], env, **settings)


def load(path: str | Path | IO[bytes], env: object = None, device: str = "auto", **kwargs: Any) -> Agent:
    """The agent in a file; the file names its algorithm. Arguments as `Agent.load`."""
    return Agent.load(path, env, device, **kwargs)
