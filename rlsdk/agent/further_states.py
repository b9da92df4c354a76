"""States of an agent besides those of its policy, algorithm and replay buffer: what its plugin lists, and its plan's."""

from __future__ import annotations

from torch import nn

from rlsdk.agent.file_checks import require_finite
from rlsdk.interfaces import Buffer, Parts, State, Stateful
from rlsdk.interfaces.own_state import restore_state, stored_state

PLAN = "plan"
"""Where the state of a plan is, beside `states`."""


def memories_of(parts: Parts) -> dict[str, Buffer[object, object]]:
    """Further memories, which are saved where the replay buffer is."""
    return {name: state for name, state in parts.states.items() if isinstance(state, Buffer)}


def has_memories(parts: Parts) -> bool:
    """Whether there is anything that files hold only on request."""
    return parts.buffer is not None or bool(memories_of(parts))


def further_states(parts: Parts) -> dict[str, object]:
    """Entries of the section `training`; none for most agents."""
    memories = memories_of(parts)
    states = {name: stored_state(state) for name, state in parts.states.items() if name not in memories}
    plan: State = {PLAN: stored_state(parts.plan)} if isinstance(parts.plan, Stateful) else {}
    return {**({"states": states} if states else {}), **plan}


def restore_further(parts: Parts, section: State) -> None:
    """Put back what `further_states` gave. Raises KeyError or ValueError when something is missing or differs."""
    if set(parts.states) - set(memories_of(parts)):
        restore_states(parts, section["states"])
    if isinstance(parts.plan, Stateful):
        restore_state(parts.plan, section[PLAN])


def restore_states(parts: Parts, states: State) -> None:
    """Put back the states of `Parts.states`, but for memories."""
    memories = memories_of(parts)
    for name, state in parts.states.items():
        if name not in memories:
            require_finite(stored_state(state), states[name], name)
            restore_state(state, states[name])


def stored_memories(parts: Parts) -> State | None:
    """The section `memories`; None where there are none."""
    return {name: dict(memory.state_dict()) for name, memory in memories_of(parts).items()} or None


def restore_memories(parts: Parts, section: State) -> None:
    """Put back what `stored_memories` gave. Raises KeyError when one is missing, and what a memory raises."""
    for name, memory in memories_of(parts).items():
        memory.load_state_dict(section[name])


def move(parts: Parts, device: str) -> None:
    """Move further networks to a device."""
    for state in parts.states.values():
        if isinstance(state, nn.Module):
            state.to(device)
