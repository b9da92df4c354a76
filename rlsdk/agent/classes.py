"""The user-facing class of an algorithm: the class that its plugin defines, or a generated one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar, cast

from rlsdk.agent.made_by import algorithm_in, spec_for
from rlsdk.errors import ArtifactError, PluginError, shown
from rlsdk.registry import AlgorithmSpec, agent_type, spec_of_class
from rlsdk.settings import docstring


class OfAlgorithm(Protocol):
    """An agent class, which has the spec of its algorithm."""

    spec: ClassVar[AlgorithmSpec]


AgentT = TypeVar("AgentT", bound=OfAlgorithm)
NOT_CALLED = {
    "trainings": (
        "train",
        "collect_rollouts",
        "_store_transition",
        "_sample_action",
        "_setup_model",
        "_update_learning_rate",
    ),
    "evaluations": ("predict",),
}
"""Activity -> methods that it does not call, so that overriding them has no effect; most are internal in stable-baselines3."""


def bind(cls: type[Any]) -> None:
    """Set the `spec` of a new subclass of `rlsdk.Agent`, and warn of overridden methods that would have no effect."""
    if "spec" not in vars(cls) and (spec := spec_of_class(cls)) is not None:
        cls.spec = spec
    if "spec" in vars(cls):
        cls.policy_aliases = {name: name for name in cls.spec.policies}
    for caller, names in NOT_CALLED.items():
        if overridden := [name for name in names if name in vars(cls)]:
            warnings.warn(
                f"{cls.__name__} overrides {', '.join(overridden)}, which {caller} do not call; change what is learnt"
                " in a plugin (rlsdk new), what happens during training in a callback, and actions in a wrapper of the"
                " environment",
                RuntimeWarning,
                stacklevel=3,
            )


def class_of(spec: AlgorithmSpec, base: type[AgentT]) -> type[AgentT]:
    """The agent class that the plugin defines, or a generated one if it defines none; a subclass of `base`.

    Raises:
        PluginError: the plugin's class is not a subclass of `base`.
    """
    own = agent_type(spec)
    if own is None:
        members = {"spec": spec, "__doc__": docstring(spec.config_type)}
        return cast("type[AgentT]", type(spec.id.replace("-", "_").upper(), (base,), members))
    if not issubclass(own, base):
        raise PluginError(f"the class that {spec.id!r} names, {own.__name__}, is not a subclass of rlsdk.Agent")
    return own


def class_for(document: Mapping[str, object], asked: type[AgentT], base: type[AgentT]) -> type[AgentT]:
    """The class for the agent in a file: `asked`, the class whose `load` was called, or if that is `base` the plugin's class.

    Raises:
        ArtifactError: the file holds an agent of another algorithm than `asked`. PluginError: its plugin is not installed, or
        is broken.
    """
    name = algorithm_in(document)
    if asked is base:
        return class_of(spec_for(document), base)
    if asked.spec.id != name:
        raise ArtifactError(
            f"the file holds a {shown(name, 100)} agent, not a {asked.spec.id!r}; rlsdk.load(path) opens any"
        )
    return asked
