"""Replay buffers in files: in an agent's own, put back when they are needed, or in files of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rlsdk.agent import agent_file
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.file_checks import blaming_the_file
from rlsdk.agent.further_states import restore_memories
from rlsdk.agent.made_by import upgraded
from rlsdk.errors import ArtifactError, RlsdkError, UsageError, fitting
from rlsdk.interfaces import State
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.memory_budget import require_memory
from rlsdk.storage import factory
from rlsdk.storage.journal import FOLDER, joined

KIND = "rlsdk-replay"
SECTION = "replay"
MEMORIES = "memories"
"""The section of further memories."""


def pending_replay(
    source: Path | IO[bytes], document: Mapping[str, object], sections: State, spec: AlgorithmSpec
) -> Callable[[], State]:
    """Reads the sections `replay` and `memories` of an agent file when they are needed: prediction does not wait for them.

    `document` is as it stands in the file, `sections` have been upgraded. A file object is read now: it may be closed later.
    """
    if SECTION in sections or MEMORIES in sections or not isinstance(source, Path):
        return lambda: _memories(document, sections, source)

    def reading() -> State:
        memories = (SECTION, MEMORIES)
        everything = ("policy", "training", *memories) if spec.upgrade is not None else memories
        again, stored = factory.read(source, everything, kind=agent_file.KIND)
        if again != document:
            raise ArtifactError(
                f"{source} has changed since the agent was loaded from it; load(path, env=env) reads it immediately"
            )
        _, found = upgraded(again, stored, spec)
        return _memories(document, found, source)

    return reading


def _memories(document: Mapping[str, object], sections: State, source: Path | IO[bytes]) -> State:
    found = {name: sections[name] for name in (SECTION, MEMORIES) if name in sections}
    return {**found, SECTION: _whole(document, found[SECTION], source)} if SECTION in found else found


def require_room(agent: AssembledAgent) -> None:
    """Refuse a replay buffer that cannot fit, as long as it is empty: a filled one holds its memory already."""
    if agent.parts.buffer is not None and not len(agent.parts.buffer):
        advice = "lower buffer_size, or set optimize_memory_usage=True"
        require_memory(agent.parts.buffer.bytes_required(), "the replay buffer", advice)


def restore_replay(agent: AssembledAgent) -> None:
    """Put back the replay buffer of the file the agent was loaded from, if that is still to be done.

    Raises:
        ArtifactError: the file is gone, has changed, or its memory does not fit.
    """
    if agent.pending_replay is None:
        return
    found = agent.pending_replay()
    if SECTION in found and agent.parts.buffer is not None:
        require_room(agent)
        with _refilling(agent, "replay buffer"):
            agent.parts.buffer.load_state_dict(found[SECTION])
    if MEMORIES in found:
        with _refilling(agent, "further memory"):
            restore_memories(agent.parts, found[MEMORIES])
    agent.pending_replay = None


@contextmanager
def _refilling(agent: AssembledAgent, what: str) -> Iterator[None]:
    """A memory of the file is put back inside. Raises ArtifactError where it does not fit, which blames the file only if the
    agent is as it was stored."""
    if agent.as_stored:
        with blaming_the_file(True), fitting(f"the {what} in the file does not fit"):
            yield
        return
    try:
        yield
    except Exception as error:  # any error of a memory with other settings
        reason = f" ({error})" if isinstance(error, RlsdkError) else ""
        raise ArtifactError(
            f"the {what} in the file does not fit the settings or the number of environments given now{reason}; give those that"
            f" it was saved with"
        ) from None


def _whole(document: Mapping[str, object], state: State, source: Path | IO[bytes]) -> State:
    """The state of the replay buffer, with the rows of the folder beside the file, if they are stored there."""
    parts = document.get("replay_parts")
    if parts is None:
        return state
    if not isinstance(source, Path):
        raise ArtifactError("the rows of the replay buffer are in a folder next to the file; load it by its path")
    if not isinstance(parts, list) or not all(isinstance(name, str) for name in parts):
        raise ArtifactError("the file is damaged: its manifest names no parts of a replay buffer")
    return joined(state, source.parent / FOLDER, parts)


def save_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Write the replay buffer alone."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    restore_replay(agent)
    factory.write(agent_file.with_suffix(path), {"kind": KIND}, {SECTION: agent.parts.buffer.state_dict()})


def load_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Read a replay buffer into the agent's own."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    if agent.run is not None and agent.in_round:
        raise UsageError(
            "load_replay_buffer would mix the buffer with the steps of the round that is being collected; call it before learn,"
            " or between rounds: in on_training_start or on_rollout_start (_on_training_start, _on_rollout_start)"
        )
    _, sections = factory.read(agent_file.existing(path), kind=KIND)
    with fitting("the file holds no replay buffer for this agent"):
        agent.parts.buffer.load_state_dict(sections[SECTION])
    agent.pending_replay = None
