"""Writes agents to files and loads them; passes parameters and policies from one agent to another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.agent import agent_file, training_state
from rlsdk.agent.agent_file import AgentT, FileManifest, construction_limit
from rlsdk.agent.assembled import AssembledAgent, PolicyTransfer, in_plain_modes
from rlsdk.agent.assembly import assemble
from rlsdk.agent.attributes import setting_names
from rlsdk.agent.training_state import SECTIONS
from rlsdk.environments.vector.connected import device_of
from rlsdk.errors import ArtifactError, NetArchError, SettingsError, fitting, shown, suggest
from rlsdk.interfaces import AlgorithmAbilities, State
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Cursor
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry.loading import require_usable
from rlsdk.runtime.output import print_line
from rlsdk.runtime.process import choose_device
from rlsdk.settings import structure
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.spaces import Space, from_json
from rlsdk.storage import archive
from rlsdk.storage.archive import table_in
from rlsdk.storage.journal import Journal
from rlsdk.storage.tensors import nested_state
from rlsdk.tree import flatten

Target = str | Path | IO[bytes]


def save_checkpoint(agent: AssembledAgent, path: Path, *, replay: bool, journal: Journal | None) -> bool:
    """See `Agent.save_checkpoint`. With a journal, the rows of the replay buffer are written to the journal instead."""
    wanted = training_state.buffer_sections(agent.parts) if replay else frozenset[str]()
    sections = training_state.sections_of(agent, include=wanted)
    document = agent_file.describe_agent(agent)
    if journal is not None and "replay" in sections:
        sections["replay"], parts = journal.write(sections["replay"])
        # the files of the journal that hold the rows
        document |= {"replay_parts": parts} if parts else {}
    archive.write(agent_file.with_suffix(path), document, sections)
    return "episodes" in sections["training"]


def save_as_asked(
    agent: AssembledAgent,
    path: Target,
    exclude: Iterable[str] | None,
    include: Iterable[str] | None,
    attributes: Iterable[str],
) -> Path | None:
    """See `Agent.save`. As in stable-baselines3, `exclude` and `include` may also contain names of attributes.

    Raises:
        SettingsError: a name is neither a section nor an attribute, or `include` has an attribute that files never contain.
    """
    excluded, included = (
        {"replay" if n == "replay_buffer" else n for n in ([names] if isinstance(names, str) else names or ())}
        for names in (exclude, include)
    )
    known, settings = {*SECTIONS, *attributes}, setting_names(type(agent.config))
    for name in sorted(excluded | included):
        if name not in known:
            raise SettingsError(
                f"an agent file has no section {name!r} and the agent no such attribute;"
                f" {suggest(name, {*SECTIONS, *settings})}"
            )
    stored = {*settings, *SECTIONS, "num_timesteps"} - {*agent_file.NOT_RESTORED}
    if absent := sorted(included - stored):
        advice = f"pass it again when loading, load(path, {absent[0]}=...)"
        raise SettingsError(
            f"files never hold {absent[0]!r}; {advice if absent[0] in settings else 'leave it out of include'}"
        )
    sections = set(SECTIONS)
    state = training_state.sections_of(agent, exclude=excluded & sections, include=included & sections)
    target = agent_file.with_suffix(path)
    archive.write(target, agent_file.describe_agent(agent), state)
    return target if isinstance(target, Path) else None


def read(path: Target, *, replay: bool) -> tuple[Path | IO[bytes], FileManifest, State]:
    """Read (the path or file object, the manifest, the sections) of an agent file.

    The replay buffer is read only with `replay`, or from a file object, which may be closed later.

    Raises:
        ArtifactError: the file is missing, damaged, malicious, or not of an agent.
    """
    source = agent_file.existing(path)
    wanted = (*SECTIONS, "memories") if replay or not isinstance(source, Path) else ("policy", "training")
    document, sections = archive.read(source, wanted, kind=agent_file.KIND)
    if "policy" not in sections:
        raise ArtifactError("the file is damaged: it has no section of a policy")
    return source, agent_file.require_manifest(document), sections


def chosen_device(wanted: str, env: object) -> str:
    """The setting `device` of an agent that continues in `env`: `auto` is the device of environments on a GPU."""
    if env is None or wanted != "auto":
        return wanted
    return own if (own := device_of(env)) != "cpu" else wanted


@in_plain_modes
def load(
    path: Target, asked: type[AgentT], base: type[AgentT], changes: State, *, replay: bool, force_reset: bool
) -> tuple[type[AgentT], AssembledAgent]:
    """(class, agent without an environment) of a file; see `Agent.load`.

    Args:
        asked, base: the class whose `load` was called, and the base class of all agents.
        changes: settings that replace those of the file.
        replay: read the replay buffer now, not at its first use.
    """
    source, document, stored = read(path, replay=replay)
    kind = agent_file.class_for(document, asked, base)
    spec = kind.spec
    with agent_file.naming(source, document, spec):
        plugin = require_usable(spec)
        manifest, sections = agent_file.upgraded(document, stored, spec)
        as_stored = not set(changes) - {"device"}
        # with other settings, or another version of the plugin, a setting that does not fit is not the file's fault
        of_file = as_stored and (
            plugin is None or agent_file.made_with(manifest)[1] in (plugin.version, agent_file.UNKNOWN)
        )
        with agent_file.blaming_the_file(of_file):
            config = structure(agent_file.restored_config(manifest, changes), spec.config_type)
        # raises outside of the block below: the caller chose it
        choose_device(config.device, config.policy)
        spaces = from_json(manifest["observation_space"]), from_json(manifest["action_space"])
        with (
            agent_file.blaming_the_file(of_file),
            fitting("the file's settings and spaces make no agent"),
            # before networks that no such file can fill take all memory
            construction_limit(sections),
        ):
            agent = assemble(spec, config, spaces, manifest["num_envs"], None, class_name=kind.__name__)
        # before `restore`, which puts back the streams of a training on top
        agent.seed, agent.as_stored = manifest["seed"], as_stored
        agent.streams.reseed(agent.seed)
        training_state.restore(agent, sections, changes)
    agent.met_masks, agent.env_name = bool(document.get("action_masks")), document.get("environment")
    if force_reset and agent.stored_cursor is not None:
        agent.stored_cursor = replace(agent.stored_cursor, episodes=None)
    if agent.parts.buffer is not None or agent.parts.states:
        # not all sections: the tensors of the policy would stay in memory for as long as the buffer is not needed
        known = {name: sections[name] for name in ("replay", "memories") if name in sections}
        agent.pending_replay = partial(training_state.stored_buffers, source, document, known, spec)
    return kind, agent


def print_systems(path: Target) -> None:
    """Print the package versions that a file was saved with, and the installed ones."""
    document, here = archive.inspect(agent_file.existing(path), kind=agent_file.KIND), agent_file.system_info()
    there = document.get("system")
    for name, value in here.items():
        was = there.get(name, "unknown") if isinstance(there, dict) else "unknown"
        print_line(f"{name}: saved with {was}, here {value}")


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
    document: FileManifest
    state: State

    @staticmethod
    def read(path: Target) -> StoredPolicy:
        """Read the policy of an agent file.

        Raises:
            ArtifactError: the file is missing, damaged, or not of an agent. PluginError: its plugin is not installed.
        """
        _, document, sections = read(path, replay=False)
        document, sections = agent_file.upgraded(document, sections, agent_file.spec_for(document))
        name = f"the file {path}" if isinstance(path, str | Path) else "the file"
        return StoredPolicy(document["algorithm"], name, document, sections["policy"])

    @property
    def spaces(self) -> tuple[Space, Space]:
        """The observation space and the action space of the file; raises ArtifactError if it has none."""
        observation, action = (from_json(self.document[name]) for name in agent_file.SPACES)
        return observation, action

    def settings_for(self, spec: AlgorithmSpec, given: Mapping[str, object]) -> dict[str, object]:
        """The settings `given`, and those of the file that define the policy, if the algorithm of `spec` has them.

        Raises:
            SettingsError: `given` has no policy, and the algorithm lacks the file's.
        """
        config = self.document["config"]
        found = {name: config[name] for name in SHARED if config.get(name) is not None}
        if "policy" not in given and (policy := found.get("policy")) not in spec.policies:
            raise SettingsError(
                f"the file of {self.algorithm} has {shown(policy, 50)}, which {spec.id} has not; choose policy (--set"
                f" policy=...) from {', '.join(spec.policies)}"
            )
        known = {name for name in _names(spec.config_type, "policy_kwargs") if name not in NOT_NETWORKS}
        networks = config.get("policy_kwargs")
        stored = networks if isinstance(networks, dict) else {}
        missing = {name.removeprefix("policy_kwargs.") for name in self.document["not_stored"]}
        # arguments of classes that are not stored
        missing |= {name.replace("_class", "_kwargs") for name in missing}
        chosen = {name: value for name, value in stored.items() if name in known and name not in missing}
        own = given.get("policy_kwargs")
        if isinstance(own, Mapping):
            chosen = {**chosen, **own}
        elif own is not None:
            return {**found, **given}
        return {**found, **given, "policy_kwargs": chosen}

    @contextmanager
    def fitting(self, spec: AlgorithmSpec, given: Mapping[str, object], env: object) -> Iterator[None]:
        """Raise a clear error if the networks that are built inside the block do not match the file.

        Raises:
            SettingsError: the file's `net_arch` does not match the algorithm's networks; the message names both algorithms.
            ArtifactError: the networks are far larger than the file, which describes them.
        """
        own = given.get("policy_kwargs", {})
        # a user who gives an environment and networks may want some that are far larger than the file
        of_file = env is None or "policy_kwargs" not in given
        try:
            with construction_limit(self.state) if of_file else nullcontext():
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
        agent_file.require_same_places(self.document, agent.context)
        own = tree.flatten(agent.preprocessing.policy_state(agent.parts.policy))
        theirs, unchanged, merged = tree.flatten(self.state), dict[str, str](), dict[str, object]()
        agent_file.require_finite(lambda: own, theirs, "policy")
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
        if (algorithm := ability(agent.parts.algorithm, AlgorithmAbilities, "policy_replaced")) is not None:
            algorithm.policy_replaced()
        transfer = agent.policy_transfer = PolicyTransfer(taken, unchanged, tuple(sorted(set(theirs) - set(own))))
        return transfer


def _is_weight(name: str, value: object) -> bool:
    """Whether an entry of a policy is a weight: a tensor that is neither 0-d nor a statistic of the normalizer."""
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


METADATA = "_metadata"
"""The attribute of the parameters that holds the agent's spaces as JSON values. The `state_dict` of torch also has one of this
name, which copies and `torch.save` keep."""


def parameters_of(agent: AssembledAgent) -> OrderedDict[str, State]:
    """Name -> state of every network and optimizer; see `Agent.get_parameters`."""
    found = OrderedDict(_parameters(agent))
    setattr(found, METADATA, agent_file.spaces_of(agent.context))
    return found


def _parameters(agent: AssembledAgent) -> dict[str, State]:
    policy = agent.preprocessing.policy_state(agent.parts.policy)
    return {"policy": policy, **agent.parts.algorithm.state_dict(), **_further(agent)}


def _further(agent: AssembledAgent) -> dict[str, State]:
    """The entry `states` with the states of `Parts.states`; empty if there are none."""
    found = training_state.further_states(agent.parts).get("states")
    return {"states": found} if isinstance(found, Mapping) else {}


@in_plain_modes
def set_parameters(agent: AssembledAgent, source: str | Path | IO[bytes] | State, *, exact_match: bool) -> None:
    """Replace parameters in place; see `Agent.set_parameters`."""
    current = _parameters(agent)
    if isinstance(spaces := getattr(source, METADATA, None), Mapping):
        agent_file.require_same_places(spaces, agent.context)
    given = source if isinstance(source, Mapping) else _parameters_in(source, agent)
    if unknown := sorted(set(given) - set(current)):
        raise ArtifactError(f"the agent has no {unknown}; it has {sorted(current)}")
    if exact_match and (missing := sorted(set(current) - set(given))):
        raise ArtifactError(f"exact_match needs all of {sorted(current)}; missing: {missing}")
    if exact_match:
        _require_all(current, given, "")
    # some parts find an error only when they load: then all get back what they had
    backup = {name: _copied(state) for name, state in current.items()}
    try:
        if not exact_match and isinstance(policy := given.get("policy"), Mapping):
            given = {**given, "policy": _under_every_name(current["policy"], policy)}
        merged = {**backup, **{name: _merged(backup[name], value, exact_match) for name, value in given.items()}}
        _apply(agent, merged)
        if exact_match:
            _require_emptied(agent, given)
        _take_over_count(agent)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        _apply(agent, backup)
        raise ArtifactError(f"the parameters do not fit this agent: {error}") from None


def _under_every_name(current: State, given: State) -> State:
    """`given` with each tensor under all names that `current` has for it, because networks may share a parameter."""
    names: dict[tuple[int, torch.Size], list[str]] = {}
    for name, value in flatten(current).items():
        if isinstance(value, Tensor) and value.numel():
            names.setdefault((value.data_ptr(), value.shape), []).append(name)
    found, others = flatten(given), dict[str, object]()
    for same in names.values():
        values = [found[name] for name in same if name in found]
        others |= {name: values[0] for name in same if values and name not in found}
    return nested_state({**found, **others}) if others else given


def _require_all(current: object, given: object, place: str) -> None:
    """Raise ArtifactError if `given` lacks a tensor or value of `current`, or has one that `current` lacks."""
    # an optimizer that has made no step has an empty state
    if not isinstance(current, Mapping) or not current:
        return
    # see `_require_emptied`
    if place not in ("", " of 'policy'") and isinstance(given, Mapping) and not given:
        return
    known, found = set(current), set(given) if isinstance(given, Mapping) else set()
    if missing := sorted(map(str, known - found)):
        advice = "exact_match=False replaces what is given and leaves the rest"
        raise ArtifactError(f"exact_match needs every parameter{place}; missing: {', '.join(missing[:5])}; {advice}")
    if unknown := sorted(map(str, found - known)):
        raise ArtifactError(f"the agent has no parameter {unknown[0]!r}{place}; {suggest(unknown[0], map(str, known))}")
    for name, value in current.items():
        _require_all(value, given[name] if isinstance(given, Mapping) else {}, f" of {name!r}")


def _require_emptied(agent: AssembledAgent, given: State) -> None:
    """Raise ValueError if a state is empty in `given`, like that of an optimizer before its first step, but was not emptied in
    the agent."""
    now = flatten(_parameters(agent))
    for name, value in flatten(given).items():
        if isinstance(value, Mapping) and name not in now:
            raise ValueError(f"{name!r} is empty")


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _merged(old: object, new: object, exact: bool) -> object:
    """A copy of `new`; unless `exact`, entries that `new` lacks are those of `old`. Tensors in both must have equal shapes."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**({} if exact else old), **{name: _merged(old.get(name), value, exact) for name, value in new.items()}}
    if isinstance(old, Tensor) and torch.as_tensor(new).shape != old.shape:
        raise ArtifactError(
            f"a parameter has shape {tuple(torch.as_tensor(new).shape)}, the agent's has {tuple(old.shape)}"
        )
    # a copy, because algorithms may store the tensors that they load and change them
    return _copied(torch.as_tensor(new) if isinstance(old, Tensor) else new)


def _apply(agent: AssembledAgent, parameters: State) -> None:
    with torch.no_grad():
        agent.preprocessing.load_policy_state(agent.parts.policy, parameters["policy"])
        further = _further(agent)
        agent.parts.algorithm.load_state_dict({n: v for n, v in parameters.items() if n not in ("policy", *further)})
        training_state.restore_states(agent.parts, parameters)


def _take_over_count(agent: AssembledAgent) -> None:
    """Set the updates of the cursor to the count of an algorithm that counts them, which is one of its parameters."""
    counter = ability(agent.parts.algorithm, AlgorithmAbilities, "updates")
    if counter is not None:
        agent.counts = Cursor(agent.counts.env_steps, counter.updates)


def _parameters_in(path: str | Path | IO[bytes], agent: AssembledAgent) -> State:
    _, document, stored = read(path, replay=False)
    agent_file.require_same_places(document, agent.context)
    _, sections = agent_file.upgraded(document, stored, agent.spec)
    training = sections.get("training", {})
    states = {"states": training["states"]} if "states" in training else {}
    return {"policy": sections["policy"], **table_in(training, "algorithm"), **states}
