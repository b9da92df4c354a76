"""Functions that make an agent from the id of its algorithm or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rlsdk.agent.agent import Agent
from rlsdk.agent.classes import class_of
from rlsdk.agent.construction_limit import ConstructionLimit
from rlsdk.agent.file_checks import bytes_of
from rlsdk.errors import ArtifactError
from rlsdk.interfaces import State
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


def from_parameters(
    algorithm: str,
    parameters: Mapping[str, State],
    *,
    env: object,
    policy: str | None = None,
    **settings: object,
) -> Agent:
    """Make an agent with parameters from elsewhere, such as the file of another library.

    Args:
        algorithm: id of the algorithm.
        parameters: name -> state of each network, in the form of `Agent.get_parameters`. Every weight of `policy` is needed;
            of the rest, such as optimizers, what is absent stays as it is in a new agent.
        env, policy, settings: as for `make`. They may come from the file too: networks far larger than the parameters are
            refused before there is memory for them.

    Raises:
        ArtifactError: a weight of the policy is missing, parameters do not fit, or the networks are far larger than they are.
        PluginError, SettingsError, EnvironmentFault: as for `make`.
    """
    with ConstructionLimit(bytes_of(parameters)):
        agent = make(algorithm, env=env, policy=policy, **settings)
    inner = getattr(agent.policy, "inner", agent.policy)  # the policy inside the normalization
    if missing := sorted({name for name, _ in inner.named_parameters()} - set(parameters.get("policy", {}))):
        raise ArtifactError(f"{', '.join(missing)} missing")
    agent.set_parameters(parameters, exact_match=False)
    return agent


def load(path: str | Path | IO[bytes], env: object = None, device: str = "auto", **kwargs: Any) -> Agent:
    """Load an agent of any algorithm from a file. The arguments are those of `Agent.load`."""
    return Agent.load(path, env, device, **kwargs)
