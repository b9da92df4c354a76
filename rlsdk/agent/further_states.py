"""The states of an agent in addition to those of its policy, algorithm and replay buffer: `Parts.states`, and its plan's."""

from __future__ import annotations

from torch import nn

from rlsdk.agent.file_checks import require_finite
from rlsdk.interfaces import Buffer, Parts, State, Stateful
from rlsdk.interfaces.own_state import restore_state, stored_state

PLAN = "plan"
"""The key of the state of a plan in the section `training`; the key of the other states is `states`."""


def memories_of(parts: Parts) -> dict[str, Buffer[object, object]]:
    """Additional buffers by name; they are saved only when the replay buffer is."""
    return {name: state for name, state in parts.states.items() if isinstance(state, Buffer)}


def has_memories(parts: Parts) -> bool:
    """Whether the agent has a replay buffer or additional buffers, which files store only on request."""
    return parts.buffer is not None or bool(memories_of(parts))


def further_states(parts: Parts) -> dict[str, object]:
    """Entries `states` and `plan` of the section `training`; most agents have none."""
    memories = memories_of(parts)
    states = {name: stored_state(state) for name, state in parts.states.items() if name not in memories}
    plan: State = {PLAN: stored_state(parts.plan)} if isinstance(parts.plan, Stateful) else {}
    return {**({"states": states} if states else {}), **plan}


def restore_further(parts: Parts, section: State) -> None:
    """Restore the states that `further_states` returned. Raises KeyError or ValueError if one is missing or does not fit."""
    if set(parts.states) - set(memories_of(parts)):
        restore_states(parts, section["states"])
    if isinstance(parts.plan, Stateful):
        restore_state(parts.plan, section[PLAN])


def restore_states(parts: Parts, states: State) -> None:
    """Restore the states of `Parts.states`, except buffers."""
    memories = memories_of(parts)
    for name, state in parts.states.items():
        if name not in memories:
            require_finite(stored_state(state), states[name], name)
            restore_state(state, states[name])


def stored_memories(parts: Parts) -> State | None:
    """The section `memories` with the states of additional buffers; None if there are none."""
    return {name: dict(memory.state_dict()) for name, memory in memories_of(parts).items()} or None


def restore_memories(parts: Parts, section: State) -> None:
    """Restore the buffers that `stored_memories` returned. Raises KeyError if one is missing, and the errors of the buffers."""
    for name, memory in memories_of(parts).items():
        memory.load_state_dict(section[name])


def move(parts: Parts, device: str) -> None:
    """Move the networks in `Parts.states` to a device."""
    for state in parts.states.values():
        if isinstance(state, nn.Module):
            state.to(device)
