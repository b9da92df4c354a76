"""Replay memories in files: in an agent's own, put back when they are needed, or in files of theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlsdk.agent.file_checks import blaming_the_file
from rlsdk.agent.made_by import upgraded
from rlsdk.buffers.budget import require_memory
from rlsdk.errors import ArtifactError, UsageError, fitting
from rlsdk.storage import agent_file, choose
from rlsdk.storage.journal import FOLDER, joined

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.registry import AlgorithmSpec

KIND = "rlsdk-replay"
SECTION = "replay"
State = Mapping[str, Any]


def pending_replay(
    source: Path | IO[bytes], document: Mapping[str, Any], sections: Mapping[str, Any], spec: AlgorithmSpec
) -> Callable[[], State | None]:
    """Reads the replay memory of an agent file when it is needed: prediction does not wait for it.

    `document` is as it stands in the file, `sections` have been upgraded. A file object is read now: it may be closed later.
    """
    if SECTION in sections or not isinstance(source, Path):
        state = sections.get(SECTION)
        return lambda: None if state is None else _whole(document, state, source)

    def reading() -> State | None:
        everything = ("policy", "training", SECTION) if spec.upgrade is not None else (SECTION,)
        again, found = choose.read(source, everything, kind=agent_file.KIND)
        if again != document:
            raise ArtifactError(
                f"{source} has changed since the agent was loaded from it; load(path, env=env) reads its replay memory at once"
            )
        _, found = upgraded(again, found, spec)
        return _whole(document, found[SECTION], source) if SECTION in found else None

    return reading


def require_room(agent: Agent) -> None:
    """Refuse a replay buffer that cannot fit, as long as it is empty: a filled one holds its memory already."""
    if agent.parts.buffer is not None and not len(agent.parts.buffer):
        advice = "lower buffer_size, or set optimize_memory_usage=True"
        require_memory(agent.parts.buffer.bytes_required(), "the replay buffer", advice)


def restore_replay(agent: Agent) -> None:
    """Put back the replay memory of the file the agent was loaded from, if that is still to be done.

    Raises:
        ArtifactError: the file is gone, has changed, or its memory does not fit.
    """
    if agent._pending_replay is None:
        return
    state = agent._pending_replay()
    if state is not None and agent.parts.buffer is not None:
        require_room(agent)
        with blaming_the_file(True), fitting("the replay memory in the file does not fit"):
            agent.parts.buffer.load_state_dict(state)
    agent._pending_replay = None


def _whole(document: Mapping[str, Any], state: State, source: Path | IO[bytes]) -> State:
    """The state of the replay memory, its rows from the folder beside the file where they lie there."""
    parts = document.get("replay_parts")
    if parts is None:
        return state
    if not isinstance(source, Path):
        raise ArtifactError("the rows of the replay memory lie in a folder beside the file; load it by its path")
    if not isinstance(parts, list) or not all(isinstance(name, str) for name in parts):
        raise ArtifactError("the file is damaged: its manifest names no parts of a replay memory")
    return joined(state, source.parent / FOLDER, parts)


def save_replay_buffer(agent: Agent, path: str | Path | IO[bytes]) -> None:
    """Write the replay buffer alone."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    restore_replay(agent)
    choose.write(agent_file.with_suffix(path), {"kind": KIND}, {SECTION: agent.parts.buffer.state_dict()})


def load_replay_buffer(agent: Agent, path: str | Path | IO[bytes]) -> None:
    """Read a replay buffer into the agent's own."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    _, sections = choose.read(agent_file.existing(path), kind=KIND)
    with fitting("the file holds no replay buffer for this agent"):
        agent.parts.buffer.load_state_dict(sections[SECTION])
    agent._pending_replay = None
