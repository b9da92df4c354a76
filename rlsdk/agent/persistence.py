"""Agents to files and back: which state goes into which section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk import spaces
from rlsdk.agent.attributes import setting_names
from rlsdk.agent.construction_limit import ConstructionLimit
from rlsdk.agent.creation import assemble
from rlsdk.agent.file_checks import blaming_the_file, bytes_of, require_finite
from rlsdk.agent.made_by import UNKNOWN, class_for, made_with, naming, upgraded
from rlsdk.agent.networks import require_same_layers
from rlsdk.agent.resumption import StoredCursor, stored_cursor
from rlsdk.agent.stored_replay import pending_replay, restore_replay
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.errors import ArtifactError, SettingsError, UsageError, fitting, suggest
from rlsdk.math.stored import count_in
from rlsdk.registry import plugin_of
from rlsdk.runtime.output import tell
from rlsdk.settings import structure
from rlsdk.storage import agent_file, choose
from rlsdk.storage.journal import Journal
from rlsdk.tally import Tally

if TYPE_CHECKING:
    from rlsdk.agent import Agent

SECTIONS = ("policy", "training", "replay")
MAX_ENVS = 2**20
NOTHING: frozenset[str] = frozenset()
Target = str | Path | IO[bytes]


def save(
    agent: Agent,
    path: Target,
    *,
    exclude: Set[str] = NOTHING,
    include: Set[str] = NOTHING,
    journal: Journal | None = None,
) -> bool:
    """Write an agent file; see `Agent.save`. With a journal, the rows of the replay memory go there.

    Returns whether the file holds the running episodes.
    """
    include = {"replay" if name == "replay_buffer" else name for name in include}
    for name in sorted(exclude | include):
        if name not in SECTIONS:
            raise SettingsError(f"an agent file has no section {name!r}; {suggest(name, SECTIONS)}")
    if "policy" in exclude:
        raise SettingsError("the policy cannot be excluded: without it a file is no agent")
    require_same_layers(agent, "the agent cannot be saved")
    sections: dict[str, Mapping[str, Any]] = {"policy": dict(agent.parts.policy.state_dict())}
    if "training" not in exclude:
        sections["training"] = _training_state(agent)
    if "replay" in include:
        if agent.parts.buffer is None:
            raise UsageError(f"{agent.spec.id} has no replay buffer to include")
        restore_replay(agent)
        sections["replay"] = agent.parts.buffer.state_dict()
    parts: list[str] = []
    if journal is not None and "replay" in sections:
        sections["replay"], parts = journal.write(sections["replay"])
    document = agent_file.describe_agent(agent.spec, agent.config, agent.facts, agent.env_name)
    document |= {
        "seed": agent.seed,
        "num_timesteps": agent._total_steps - agent._step_offset,
        **({"replay_parts": parts} if parts else {}),
    }
    choose.write(agent_file.with_suffix(path), document, sections)
    return "episodes" in sections.get("training", {})


def save_as_asked(
    agent: Agent, path: Target, exclude: Iterable[str] | None, include: Iterable[str] | None
) -> Path | None:
    """`Agent.save`: besides sections, names of attributes may be given, as in the documented library.

    Raises:
        SettingsError: a name that is neither section nor attribute, or an attribute that files never hold is to be included.
    """
    excluded, included = (
        {"replay" if n == "replay_buffer" else n for n in names or ()} for names in (exclude, include)
    )
    known = {*SECTIONS, *dir(agent)}
    for name in sorted(excluded | included):
        if name not in known:
            raise SettingsError(
                f"an agent file has no section {name!r} and the agent no such attribute; {suggest(name, known)}"
            )
    stored = {*setting_names(type(agent.config)), *SECTIONS} - {*agent_file.NOT_RESTORED}
    if absent := sorted(included - stored):
        raise SettingsError(f"files never hold {absent[0]!r}; give it again when loading, load(path, {absent[0]}=...)")
    sections = set(SECTIONS)
    save(agent, path, exclude=excluded & sections, include=included & sections)
    written = agent_file.with_suffix(path)
    return written if isinstance(written, Path) else None


def _training_state(agent: Agent) -> dict[str, Any]:
    cursor, log = stored_cursor(agent), agent.run.tally.state_dict() if agent.run is not None else agent._stored_log
    state: dict[str, Any] = {
        "algorithm": agent.parts.algorithm.state_dict(),
        "streams": agent.streams.state_dict(),
        "counts": {"step_offset": agent._step_offset},
    }
    if cursor is not None:
        state["counts"] |= {"env_steps": cursor.env_steps, "updates": cursor.updates}
        state |= cursor.state_dict()
    return state if log is None else {**state, "log": log}


@in_plain_modes
def load(path: Target, cls: type[Agent], env: Any, changes: Mapping[str, Any], *, force_reset: bool) -> Agent:
    """A new agent from a file; see `Agent.load`."""
    source = agent_file.existing(path)
    wanted = SECTIONS if env is not None or not isinstance(source, Path) else ("policy", "training")
    written, sections = choose.read(source, wanted, kind=agent_file.KIND)
    agent_file.require_manifest(written)
    kind = class_for(written, cls)
    with naming(source, written, kind.spec):
        document, sections = upgraded(written, sections, kind.spec)
        agent = _assembled(kind, document, changes, bytes_of(sections))
        _restore(agent, sections)
    if force_reset and agent._stored_cursor is not None:
        agent._stored_cursor = replace(agent._stored_cursor, episodes=None)
    if agent.parts.buffer is not None:
        agent._pending_replay = pending_replay(source, written, sections, kind.spec)
    if env is not None:
        agent.set_env(env)
    return agent


def _assembled(kind: type[Agent], document: Mapping[str, Any], changes: Mapping[str, Any], size: int) -> Agent:
    """An agent with the settings and spaces of a file whose tensors have `size` bytes, and new parameters."""
    plugin = plugin_of(kind.spec)
    own = not set(changes) - {"device"} and (plugin is None or made_with(document)[1] in (plugin.version, UNKNOWN))
    with blaming_the_file(own):
        config = structure(agent_file.restored_config(document, changes), kind.spec.config_type)
    agent = kind.__new__(kind)
    observation, action = (spaces.from_json(document.get(name)) for name in ("observation_space", "action_space"))
    num_envs = _count(document, "num_envs", 1, MAX_ENVS)
    with (
        blaming_the_file(own),
        fitting("the file's settings and spaces make no agent"),
        ConstructionLimit(size),
    ):
        try:
            assemble(agent, config, (observation, action), num_envs, None)
        except OSError as error:  # its plugin opens a data set that is gone
            fix = "give the setting that names it again: load(..., custom_objects={'name': value})"
            raise ArtifactError(f"the agent cannot be built: {error}; {fix}") from error
    agent._seed = _count(document, "seed")
    agent.streams.reseed(agent.seed)
    agent.env_name = document.get("environment")
    return agent


def _count(document: Mapping[str, Any], name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ArtifactError(f"the file is damaged: its manifest says {name} = {value!r}")
    return value


def _restore(agent: Agent, sections: Mapping[str, Any]) -> None:
    with fitting("the file does not fit its own settings"):
        policy, algorithm = agent.parts.policy, agent.parts.algorithm
        require_finite(policy.state_dict(), sections["policy"], "policy")
        policy.load_state_dict(sections["policy"])
        if training := sections.get("training"):
            require_finite(algorithm.state_dict(), training["algorithm"], "algorithm")
            algorithm.load_state_dict(training["algorithm"])
            agent.streams.load_state_dict(training["streams"])
            counts = training["counts"]
            agent._step_offset = count_in(counts, "step_offset")
            if "env_steps" in counts:
                agent._stored_cursor = StoredCursor.from_state(counts, training)
            agent._stored_log = training.get("log")
            if agent._stored_log is not None:
                Tally(1, "cpu").load_state_dict(agent._stored_log)


def print_systems(path: Target) -> None:
    """Print the versions a file was made with, and those here."""
    document, here = choose.inspect(agent_file.existing(path), kind=agent_file.KIND), agent_file.system_info()
    there = document.get("system")
    for name, value in here.items():
        was = there.get(name, "unknown") if isinstance(there, dict) else "unknown"
        tell(f"{name}: saved with {was}, here {value}")


@in_plain_modes
def set_parameters(agent: Agent, source: Target | Mapping[str, Any], *, exact_match: bool) -> None:
    """Replace parameters in place; see `Agent.set_parameters`."""
    current = agent.get_parameters()
    given = source if isinstance(source, Mapping) else _parameters_in(source, agent)
    if unknown := sorted(set(given) - set(current)):
        raise ArtifactError(f"the agent has no {unknown}; it has {sorted(current)}")
    if exact_match and (missing := sorted(set(current) - set(given))):
        raise ArtifactError(f"exact_match needs all of {sorted(current)}; missing: {missing}")
    if exact_match:
        _require_all(current, given, "")
    backup = _copied(current)
    try:
        merged = {**backup, **{name: _merged(backup[name], value, exact_match) for name, value in given.items()}}
        _apply(agent, merged)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        _apply(agent, backup)
        raise ArtifactError(f"the parameters do not fit this agent: {error}") from None


def _require_all(current: Any, given: Any, place: str) -> None:
    """Raises ArtifactError when `given` lacks a tensor or value of `current`, or has one that is unknown."""
    if not isinstance(current, Mapping) or not current:  # empty: an optimiser that has made no step
        return
    if "optim" in place and isinstance(given, Mapping) and not given:
        return
    known, found = set(current), set(given) if isinstance(given, Mapping) else set()
    if missing := sorted(map(str, known - found)):
        advice = "exact_match=False replaces what is given and leaves the rest"
        raise ArtifactError(f"exact_match needs every parameter{place}; missing: {', '.join(missing[:5])}; {advice}")
    if unknown := sorted(map(str, found - known)):
        raise ArtifactError(f"the agent has no parameter {unknown[0]!r}{place}; {suggest(unknown[0], map(str, known))}")
    for name, value in current.items():
        _require_all(value, given[name], f" of {name!r}")


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _merged(old: Any, new: Any, exact: bool) -> Any:
    """`new` over `old`, or `exact`ly `new`; shapes must agree wherever both have a tensor."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**({} if exact else old), **{name: _merged(old.get(name), value, exact) for name, value in new.items()}}
    if isinstance(old, Tensor) and torch.as_tensor(new).shape != old.shape:
        raise ArtifactError(
            f"a parameter has shape {tuple(torch.as_tensor(new).shape)}, the agent's has {tuple(old.shape)}"
        )
    return torch.as_tensor(new) if isinstance(old, Tensor) else new


def _apply(agent: Agent, parameters: Mapping[str, Any]) -> None:
    with torch.no_grad():
        agent.parts.policy.load_state_dict(parameters["policy"])
        agent.parts.algorithm.load_state_dict({n: v for n, v in parameters.items() if n != "policy"})


def _parameters_in(path: Target, agent: Agent) -> dict[str, Any]:
    document, sections = choose.read(agent_file.existing(path), ("policy", "training"), kind=agent_file.KIND)
    _, sections = upgraded(document, sections, agent.spec)
    return {"policy": sections["policy"], **sections.get("training", {}).get("algorithm", {})}
