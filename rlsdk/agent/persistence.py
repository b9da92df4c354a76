"""Agents to files and back: which state goes into which section."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk import spaces
from rlsdk.agent.made_by import class_for, naming, upgraded
from rlsdk.agent.resumption import StoredCursor, stored_cursor
from rlsdk.errors import ArtifactError, SettingsError, UsageError, fitting, suggest
from rlsdk.settings import structure
from rlsdk.storage import agent_file, choose
from rlsdk.storage.journal import FOLDER, Journal, joined
from rlsdk.tally import Tally

if TYPE_CHECKING:
    from rlsdk.agent import Agent

SECTIONS = ("policy", "training", "replay")
REPLAY_KIND = "rlsdk-replay"
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
    sections: dict[str, Mapping[str, Any]] = {"policy": dict(agent.parts.policy.state_dict())}
    if "training" not in exclude:
        sections["training"] = _training_state(agent)
    if "replay" in include:
        if agent.parts.buffer is None:
            raise UsageError(f"{agent.spec.id} has no replay buffer to include")
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


def load(path: Target, cls: type[Agent], env: Any, changes: Mapping[str, Any], *, force_reset: bool) -> Agent:
    """A new agent from a file; see `Agent.load`."""
    source = _existing(path)
    wanted = SECTIONS if env is not None else ("policy", "training")
    document, sections = choose.read(source, wanted, kind=agent_file.KIND)
    kind = class_for(document, cls)
    with naming(source, document, kind.spec):
        document, sections = upgraded(document, sections, kind.spec)
        agent = _assembled(kind, document, changes)
        _restore(agent, sections)
    if force_reset and agent._stored_cursor is not None:
        agent._stored_cursor = replace(agent._stored_cursor, episodes=None)
    if env is not None:
        agent.set_env(env)
        agent._check_memory()
        if "replay" in sections and agent.parts.buffer is not None:
            with fitting("the replay memory in the file does not fit"):
                agent.parts.buffer.load_state_dict(_replay(document, sections["replay"], source))
    return agent


def _assembled(kind: type[Agent], document: Mapping[str, Any], changes: Mapping[str, Any]) -> Agent:
    """An agent with the settings and spaces of a file, and new parameters."""
    config = structure(agent_file.restored_config(document, changes), kind.spec.config_type)
    agent = kind.__new__(kind)
    observation, action = (spaces.from_json(document.get(name)) for name in ("observation_space", "action_space"))
    with fitting("the file's settings and spaces make no agent"):
        try:
            agent._assemble(config, observation, action, _count(document, "num_envs", 1, MAX_ENVS), None)
        except OSError as error:  # its plugin opens a data set that is gone
            fix = "give the setting that names it again: load(..., custom_objects={'name': value})"
            raise ArtifactError(f"the agent cannot be built: {error}; {fix}") from error
    agent.seed = _count(document, "seed")
    agent.streams.reseed(agent.seed)
    agent.env_name = document.get("environment")
    return agent


def _replay(document: Mapping[str, Any], state: Mapping[str, Any], source: Path | IO[bytes]) -> Mapping[str, Any]:
    """The state of the replay memory, its rows from the folder beside the file where they lie there."""
    parts = document.get("replay_parts")
    if parts is None:
        return state
    if not isinstance(source, Path) or not isinstance(parts, list) or not all(isinstance(name, str) for name in parts):
        raise ArtifactError("the rows of the replay memory lie in a folder beside the file; load it by its path")
    return joined(state, source.parent / FOLDER, parts)


def _count(document: Mapping[str, Any], name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ArtifactError(f"the file is damaged: its manifest says {name} = {value!r}")
    return value


def _restore(agent: Agent, sections: Mapping[str, Any]) -> None:
    with fitting("the file does not fit its own settings"):
        agent.parts.policy.load_state_dict(sections["policy"])
        if training := sections.get("training"):
            agent.parts.algorithm.load_state_dict(training["algorithm"])
            agent.streams.load_state_dict(training["streams"])
            counts = training["counts"]
            agent._step_offset = int(counts["step_offset"])
            if "env_steps" in counts:
                agent._stored_cursor = StoredCursor.from_state(counts, training)
            agent._stored_log = training.get("log")
            if agent._stored_log is not None:
                Tally(1, "cpu").load_state_dict(agent._stored_log)


def _existing(path: Target) -> Path | IO[bytes]:
    """The file as named, or with the suffix appended when only that exists."""
    if not isinstance(path, str | Path):
        return path
    plain, suffixed = Path(path), agent_file.with_suffix(path)
    return plain if plain.is_file() or not isinstance(suffixed, Path) else suffixed


def print_systems(path: Target) -> None:
    """Print the versions a file was made with, and those here."""
    document, here = choose.inspect(_existing(path), kind=agent_file.KIND), agent_file.system_info()
    there = document.get("system")
    for name, value in here.items():
        was = there.get(name, "unknown") if isinstance(there, dict) else "unknown"
        print(f"{name}: saved with {was}, here {value}")


def set_parameters(agent: Agent, source: Target | Mapping[str, Any], *, exact_match: bool) -> None:
    """Replace parameters in place; see `Agent.set_parameters`."""
    current = agent.get_parameters()
    given = source if isinstance(source, Mapping) else _parameters_in(source, agent)
    if unknown := sorted(set(given) - set(current)):
        raise ArtifactError(f"the agent has no {unknown}; it has {sorted(current)}")
    if exact_match and (missing := sorted(set(current) - set(given))):
        raise ArtifactError(f"exact_match needs all of {sorted(current)}; missing: {missing}")
    backup = _copied(current)
    merged = {**backup, **{name: _merged(backup[name], value) for name, value in given.items()}}
    try:
        _apply(agent, merged)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        _apply(agent, backup)
        raise ArtifactError(f"the parameters do not fit this agent: {error}") from None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _merged(old: Any, new: Any) -> Any:
    """`new` over `old`; shapes must agree wherever both have a tensor."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}
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
    document, sections = choose.read(_existing(path), ("policy", "training"), kind=agent_file.KIND)
    _, sections = upgraded(document, sections, agent.spec)
    return {"policy": sections["policy"], **sections.get("training", {}).get("algorithm", {})}


def save_replay_buffer(agent: Agent, path: Target) -> None:
    """Write the replay buffer alone."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    choose.write(agent_file.with_suffix(path), {"kind": REPLAY_KIND}, {"replay": agent.parts.buffer.state_dict()})


def load_replay_buffer(agent: Agent, path: Target) -> None:
    """Read a replay buffer into the agent's own."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    _, sections = choose.read(_existing(path), kind=REPLAY_KIND)
    with fitting("the file holds no replay buffer for this agent"):
        agent.parts.buffer.load_state_dict(sections["replay"])
