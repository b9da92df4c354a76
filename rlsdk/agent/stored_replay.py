"""Replay buffers in files: in agent files, from which they are restored when they are needed, or in separate files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torch import Tensor

from rlsdk.agent import agent_file
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.file_checks import blaming_the_file, require_same_entries, spaces_of
from rlsdk.agent.further_states import restore_memories
from rlsdk.agent.made_by import upgraded
from rlsdk.errors import ArtifactError, RlsdkError, UsageError, fitting, shown
from rlsdk.interfaces import HasRolloutLength, State
from rlsdk.registry import AlgorithmSpec
from rlsdk.runtime.memory_budget import require_memory
from rlsdk.spaces import nbytes
from rlsdk.storage import factory
from rlsdk.storage.journal import FOLDER, joined
from rlsdk.storage.storable import nested_state
from rlsdk.tree import flatten

KIND = "rlsdk-replay"
SECTION = "replay"
MEMORIES = "memories"
"""The section with the additional buffers in `Parts.states`."""


def pending_replay(
    source: Path | IO[bytes], document: Mapping[str, object], sections: State, spec: AlgorithmSpec
) -> Callable[[], State]:
    """A function that reads the sections `replay` and `memories` of an agent file. It is called when they are needed, so that
    loading an agent for prediction is fast.

    `document` is the manifest of the file before `upgraded`, `sections` are those after it. The sections of a file object have
    been read before, because it may be closed later.
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
    """Check that a rollout, or a batch and an empty replay buffer, fit into memory; a filled buffer has its memory already.

    Raises:
        ResourceError: it will not fit.
    """
    context, plan, buffer = agent.context, agent.parts.plan, agent.parts.buffer
    filled = buffer is not None and len(buffer) > 0
    if isinstance(plan, HasRolloutLength):
        what, advice = f"a rollout of {plan.n_steps} steps", "lower n_steps, or give fewer environments"
        require_memory(plan.n_steps * context.num_envs * nbytes(context.observation_space), what, advice)
    elif count := getattr(agent.config, "batch_size", 0):  # a minibatch of a rollout is never larger than the rollout
        what = f"a batch of {shown(count, 60)} transitions"
        needed = 2 * count * nbytes(context.observation_space)
        if buffer is None or needed > buffer.bytes_required():  # a smaller batch fits where the buffer does
            require_memory(needed, what, "lower batch_size")
    if buffer is not None and not filled:
        advice = "lower buffer_size, or set optimize_memory_usage=True"
        require_memory(buffer.bytes_required(), "the replay buffer", advice)


def restore_replay(agent: AssembledAgent) -> None:
    """Restore the replay buffer from the file that the agent was loaded from, unless this has been done.

    Raises:
        ArtifactError: the file is missing or has changed, or its buffer does not fit the agent.
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
    """Turn errors inside the block, which restores a buffer of the file, into an ArtifactError.

    The error is about the file if settings and number of environments are those of the file, else about the new ones.
    """
    if agent.as_stored:
        with blaming_the_file(True), fitting(f"the {what} in the file does not fit"):
            yield
        return
    try:
        yield
    except Exception as error:  # with other settings, restoring a buffer may raise any error
        reason = f" ({error})" if isinstance(error, RlsdkError) else ""
        raise ArtifactError(
            f"the {what} in the file does not fit the settings or the number of environments given now{reason}; give those that"
            f" it was saved with"
        ) from None


def _whole(document: Mapping[str, object], state: State, source: Path | IO[bytes]) -> State:
    """The state of the replay buffer, with its rows from the folder next to the file if they are stored there."""
    parts = document.get("replay_parts")
    if parts is None:
        return state
    if not isinstance(source, Path):
        raise ArtifactError("the rows of the replay buffer are in a folder next to the file; load it by its path")
    if not isinstance(parts, list) or not all(isinstance(name, str) for name in parts):
        raise ArtifactError("the file is damaged: its manifest names no parts of a replay buffer")
    return joined(state, source.parent / FOLDER, parts)


def save_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Write the replay buffer to a separate file; see `Agent.save_replay_buffer`."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    restore_replay(agent)
    document = {"kind": KIND, **spaces_of(agent.context)}
    factory.write(agent_file.with_suffix(path), document, {SECTION: agent.parts.buffer.state_dict()})


def load_replay_buffer(agent: AssembledAgent, path: str | Path | IO[bytes]) -> None:
    """Read a replay buffer from a separate file into the agent's; see `Agent.load_replay_buffer`."""
    if agent.parts.buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer")
    if agent.run is not None and agent.in_round:
        raise UsageError(
            "load_replay_buffer would mix the buffer with the steps of the round that is being collected; call it before learn,"
            " or between rounds: in on_training_start or on_rollout_start (_on_training_start, _on_rollout_start)"
        )
    document, sections = factory.read(agent_file.existing(path), kind=KIND)
    require_same_entries(document, agent.context)
    before = _copy_of(agent.parts.buffer.state_dict())
    try:
        with fitting("the file holds no replay buffer for this agent"):
            agent.parts.buffer.load_state_dict(sections[SECTION])
    except BaseException:  # some checks need the rows in place: put back those of before
        agent.parts.buffer.load_state_dict(before)
        raise
    agent.pending_replay = None


def _copy_of(state: State) -> State:
    """A copy of the state of a buffer, to return to; small for an agent that has collected nothing.

    Raises:
        ResourceError: there is too little memory for it.
    """
    flat = flatten(state)
    size = sum(value.nbytes for value in flat.values() if isinstance(value, Tensor))
    require_memory(size, "a copy of the present replay buffer", "load the file into a new agent")
    return nested_state({name: value.clone() if isinstance(value, Tensor) else value for name, value in flat.items()})
