"""Writes agents to files and loads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rlsdk import spaces
from rlsdk.agent import agent_file
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.assembly import assemble
from rlsdk.agent.attributes import setting_names
from rlsdk.agent.construction_limit import ConstructionLimit
from rlsdk.agent.file_checks import blaming_the_file, bytes_of
from rlsdk.agent.further_states import has_memories
from rlsdk.agent.made_by import UNKNOWN, made_with, naming, upgraded
from rlsdk.agent.stored_replay import pending_replay
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.agent.training_state import SECTIONS, TrainingState, restore, training_state
from rlsdk.environments import device_of
from rlsdk.errors import ArtifactError, SettingsError, fitting, suggest
from rlsdk.interfaces import State
from rlsdk.registry import AlgorithmSpec, plugin_of, require_usable
from rlsdk.runtime.device import choose_device
from rlsdk.runtime.output import print_line
from rlsdk.settings import structure
from rlsdk.storage import factory
from rlsdk.storage.journal import Journal

MAX_ENVS = 2**20
Target = str | Path | IO[bytes]


def write(state: TrainingState, path: Target, journal: Journal | None = None) -> None:
    """Write an agent file. With a journal, the rows of the replay buffer are written to the journal instead.

    Raises:
        ArtifactError: the file cannot be written; an existing file is unchanged.
    """
    sections: dict[str, State] = {"policy": state.policy}
    if state.learning is not None:
        sections["training"] = state.learning.state_dict()
    parts: list[str] = []
    if state.replay is not None:
        sections["replay"] = state.replay
        if journal is not None:
            sections["replay"], parts = journal.write(state.replay)
    if state.memories is not None:
        sections["memories"] = state.memories
    document = agent_file.describe_agent(state.spec, state.config, state.context, state.env_name)
    document |= {
        "seed": state.seed,
        "num_timesteps": state.num_timesteps,
        **({"action_masks": True} if state.masks else {}),
        **({"replay_parts": parts} if parts else {}),
    }
    factory.write(agent_file.with_suffix(path), document, sections)


def save_checkpoint(agent: AssembledAgent, path: Path, *, replay: bool, journal: Journal | None) -> bool:
    """See `Agent.save_checkpoint`."""
    state = training_state(agent, include={"replay"} if replay and has_memories(agent.parts) else frozenset())
    write(state, path, journal)
    return state.has_episodes


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
        advice = f"give it again when loading, load(path, {absent[0]}=...)"
        raise SettingsError(
            f"files never hold {absent[0]!r}; {advice if absent[0] in settings else 'leave it out of include'}"
        )
    sections = set(SECTIONS)
    write(training_state(agent, exclude=excluded & sections, include=included & sections), path)
    written = agent_file.with_suffix(path)
    return written if isinstance(written, Path) else None


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The path, manifest and sections of an agent file."""

    source: Path | IO[bytes]
    document: Mapping[str, object]
    sections: State


def read(path: Target, *, replay: bool, print_systems: bool) -> AgentFile:
    """Read the manifest and the sections of an agent file.

    The replay buffer is read only with `replay`, or from a file object, which may be closed later.
    `print_systems`: print the package versions that the file was saved with, and the installed ones.

    Raises:
        ArtifactError: the file is missing, damaged, malicious, or not of an agent.
    """
    source = agent_file.existing(path)
    if print_systems:
        _print_systems(source)
    wanted = (*SECTIONS, "memories") if replay or not isinstance(source, Path) else ("policy", "training")
    document, sections = factory.read(source, wanted, kind=agent_file.KIND)
    agent_file.require_manifest(document)
    return AgentFile(source, document, sections)


def chosen_device(wanted: str, env: object) -> str:
    """The setting `device` of an agent that continues in `env`: `auto` is the device of environments on a GPU."""
    return own if wanted == "auto" and (own := device_of(env)) != "cpu" else wanted


@in_plain_modes
def load(
    file: AgentFile, spec: AlgorithmSpec, changes: Mapping[str, object], *, class_name: str, force_reset: bool
) -> AssembledAgent:
    """Build the agent in a file, without an environment; see `Agent.load`."""
    with naming(file.source, file.document, spec):
        require_usable(spec)
        document, sections = upgraded(file.document, file.sections, spec)
        agent = _assembled(spec, document, changes, bytes_of(sections), class_name)
        restore(agent, agent_file.policy_in(sections), sections.get("training"), changes)
    agent.as_stored = not set(changes) - {"device"}
    if force_reset and agent.stored_cursor is not None:
        agent.stored_cursor = replace(agent.stored_cursor, episodes=None)
    if agent.parts.buffer is not None or agent.parts.states:
        agent.pending_replay = pending_replay(file.source, file.document, sections, spec)
    return agent


def _assembled(
    spec: AlgorithmSpec, document: Mapping[str, object], changes: Mapping[str, object], size: int, class_name: str
) -> AssembledAgent:
    """Assemble an agent with the settings and spaces of a file and new parameters; the file has `size` bytes of tensors."""
    plugin = plugin_of(spec)
    own = not set(changes) - {"device"} and (plugin is None or made_with(document)[1] in (plugin.version, UNKNOWN))
    with blaming_the_file(own):
        config = structure(agent_file.restored_config(document, changes), spec.config_type)
    choose_device(config.device, config.policy)  # that of the caller
    observation, action = (spaces.from_json(document.get(name)) for name in ("observation_space", "action_space"))
    num_envs = _count(document, "num_envs", 1, MAX_ENVS)
    with (
        blaming_the_file(own),
        fitting("the file's settings and spaces make no agent"),
        ConstructionLimit(size),
    ):
        try:
            agent = assemble(spec, config, (observation, action), num_envs, None, class_name=class_name)
        except OSError as error:  # the plugin opens a data set that no longer exists
            fix = "give the setting that names it again: load(..., custom_objects={'name': value})"
            raise ArtifactError(f"the agent cannot be built: {error}; {fix}") from error
    agent.seed = _count(document, "seed")
    agent.streams.reseed(agent.seed)
    agent.met_masks = document.get("action_masks") is True
    name = document.get("environment")
    agent.env_name = name if isinstance(name, str) else None
    return agent


def _count(document: Mapping[str, object], name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ArtifactError(f"the file is damaged: its manifest has {name} = {value!r}")
    return value


def _print_systems(source: Path | IO[bytes]) -> None:
    document, here = factory.inspect(source, kind=agent_file.KIND), agent_file.system_info()
    there = document.get("system")
    for name, value in here.items():
        was = there.get(name, "unknown") if isinstance(there, dict) else "unknown"
        print_line(f"{name}: saved with {was}, here {value}")
