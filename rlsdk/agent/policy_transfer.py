"""Makes a new agent that begins with the policy in a file, which may be of another algorithm, settings or shapes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rlsdk import spaces, tree
from rlsdk.agent import agent_file, persistence
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import assemble
from rlsdk.agent.construction_limit import ConstructionLimit
from rlsdk.agent.file_checks import SPACES, bytes_of, require_finite, require_same_places
from rlsdk.agent.made_by import algorithm_in, spec_for, upgraded
from rlsdk.agent.transferred import PolicyTransfer
from rlsdk.errors import ArtifactError, NetArchError, SettingsError, fitting, shown
from rlsdk.interfaces import FollowsPolicy
from rlsdk.interfaces.abilities import ability
from rlsdk.registry import AlgorithmSpec
from rlsdk.settings import structure
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.constructor import bind
from rlsdk.spaces import Space

SHARED = ("policy", "normalize", "frame_stack")
"""Settings that define the policy, in addition to `policy_kwargs`."""
NOT_NETWORKS = ("optimizer_class", "optimizer_kwargs", "ortho_init", "log_std_init", "kernel")
"""Entries of `policy_kwargs` that do not define the networks."""


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """The policy in a file: its tensors, and the settings that define it."""

    algorithm: str
    file: str
    """The name of the file, for messages."""
    document: Mapping[str, object]
    state: Mapping[str, object]

    @staticmethod
    def read(path: persistence.Target) -> StoredPolicy:
        """Read the policy of an agent file.

        Raises:
            ArtifactError: the file is missing, damaged, or not of an agent. PluginError: its plugin is not installed.
        """
        file = persistence.read(path, replay=False, print_systems=False)
        document, sections = upgraded(file.document, file.sections, spec_for(file.document))
        name = f"the file {path}" if isinstance(path, str | Path) else "the file"
        return StoredPolicy(algorithm_in(document), name, document, agent_file.policy_in(sections))

    @property
    def spaces(self) -> tuple[Space, Space]:
        """The observation space and the action space of the file; raises ArtifactError if it has none."""
        observation, action = (spaces.from_json(self.document.get(name)) for name in SPACES)
        return observation, action

    def settings_for(self, spec: AlgorithmSpec, given: Mapping[str, object]) -> dict[str, object]:
        """The settings `given`, and those of the file that define the policy, if the algorithm of `spec` has them.

        Raises:
            SettingsError: `given` has no policy, and the algorithm lacks the file's. ArtifactError: the file is damaged.
        """
        config = self.document.get("config")
        if not isinstance(config, dict):
            raise ArtifactError("the file is damaged: its manifest holds no settings")
        found = {name: config[name] for name in SHARED if config.get(name) is not None}
        if "policy" not in given and (policy := found.get("policy")) not in spec.policies:
            raise SettingsError(
                f"the file of {self.algorithm} has {shown(policy, 50)}, which {spec.id} has not; choose policy (--set"
                f" policy=...) from {', '.join(spec.policies)}"
            )
        known = {name for name in _names(spec.config_type, "policy_kwargs") if name not in NOT_NETWORKS}
        networks = config.get("policy_kwargs")
        stored = networks if isinstance(networks, dict) else {}
        missing = {str(name).removeprefix("policy_kwargs.") for name in _listed_of(self.document)}
        missing |= {name.replace("_class", "_kwargs") for name in missing}  # arguments of classes that are not stored
        chosen = {name: value for name, value in stored.items() if name in known and name not in missing}
        own = given.get("policy_kwargs")
        if isinstance(own, Mapping):
            chosen = {**chosen, **own}
        elif own is not None:
            return {**found, **given}
        return {**found, **given, "policy_kwargs": chosen}

    @contextmanager
    def fitting(self, spec: AlgorithmSpec, given: Mapping[str, object]) -> Iterator[None]:
        """Raise a clear error if the networks that are built inside the block do not match the `net_arch` of the file.

        Raises:
            SettingsError: the file's `net_arch` does not match the algorithm's networks; the message names both algorithms.
        """
        own = given.get("policy_kwargs", {})
        try:
            yield
        except NetArchError as error:
            if not isinstance(own, Mapping) or "net_arch" in own:
                raise
            raise SettingsError(
                f"{self.file}, of {self.algorithm}, has no policy that {spec.id} can take: its {error}; give the file of an"
                " algorithm with the same networks, or another policy_kwargs.net_arch"
            ) from None

    def into(self, agent: AssembledAgent) -> PolicyTransfer:
        """Copy every tensor of the file that the agent's policy has under the same name and with the same shape.

        Raises:
            ArtifactError: there is none, a tensor is not finite, or the file's spaces have other entries; then the agent is
            unchanged.
        """
        require_same_places(self.document, agent.context)
        own = tree.flatten(agent.preprocessing.policy_state(agent.parts.policy))
        theirs, unchanged, merged = tree.flatten(self.state), dict[str, str](), dict[str, object]()
        require_finite(own, theirs, "policy")
        for name, value in own.items():
            merged[name], why = _chosen(value, theirs, name)
            if why:
                unchanged[name] = why
        taken = tuple(name for name in own if name not in unchanged)
        if not any(_is_weight(name, own[name]) for name in taken):
            raise ArtifactError(
                f"the policy of the file, of {self.algorithm}, has no tensor that fits {agent.spec.id}: their networks have"
                " other parts or sizes"
            )
        with torch.no_grad(), fitting("the policy of the file does not fit"):
            agent.preprocessing.load_policy_state(agent.parts.policy, tree.unflatten(merged))
        if (algorithm := ability(agent.parts.algorithm, FollowsPolicy)) is not None:
            algorithm.policy_replaced()
        transfer = agent.policy_transfer = PolicyTransfer(taken, unchanged, tuple(sorted(set(theirs) - set(own))))
        return transfer


def _is_weight(name: str, value: object) -> bool:
    """Whether an entry of a policy is a weight: a tensor that is neither 0-d nor a statistic of the normaliser."""
    return isinstance(value, Tensor) and value.dim() > 0 and not name.startswith("normalizer/")


def _chosen(own: object, theirs: Mapping[str, object], name: str) -> tuple[object, str]:
    """(the value to use, why it is the agent's `own` and not the file's). The reason is empty if it is the file's."""
    if name not in theirs:
        return own, "not in the file"
    value = theirs[name]
    if isinstance(own, Tensor):
        if not isinstance(value, Tensor) or value.shape != own.shape:
            shape = tuple(value.shape) if isinstance(value, Tensor) else "none"
            return own, f"shape {tuple(own.shape)}, the file's has {shape}"
        return value.to(own), ""
    return value, ""


def _names(config_type: type[AgentConfig], field: str) -> tuple[str, ...]:
    """The names of the settings in the table `field` of a config class."""
    kind = type(getattr(structure({"policy": ""}, config_type), field, None))
    return tuple(getattr(entry, "name", "") for entry in getattr(kind, "__attrs_attrs__", ()))


def _listed_of(document: Mapping[str, object]) -> list[object]:
    listed = document.get("not_stored")
    return listed if isinstance(listed, list) else []


def without_environment(
    stored: StoredPolicy, spec: AlgorithmSpec, settings: Mapping[str, object], class_name: str
) -> AssembledAgent:
    """Assemble a new agent with the spaces of the file. It can predict, and train after `set_env`."""
    config = bind(spec.config_type, (), settings)
    with ConstructionLimit(bytes_of(stored.state)):
        return assemble(spec, config, stored.spaces, 1, None, class_name=class_name)


def warn_of_rest(transfer: PolicyTransfer) -> None:
    """Warn once with a list of the tensors that were not copied, if there are any."""
    if transfer.partial:
        warnings.warn(f"load_policy: {transfer}", stacklevel=3)
