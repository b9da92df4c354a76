"""The state of a vector environment, made of the states of its environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rlsdk.environments.states.values import OpaqueValue
from rlsdk.errors import ArtifactError

MAX_LENGTH = 2**62


@runtime_checkable
class GivesState(Protocol):
    """A vector environment whose state can be read."""

    def get_state(self) -> Mapping[str, object]: ...


def read_state(env: object) -> Mapping[str, object]:
    """The state of a vector environment.

    Raises:
        OpaqueValue: it has no method `get_state`, or it contains a value whose state cannot be read.
    """
    if not isinstance(env, GivesState):
        raise OpaqueValue(f"{type(env).__name__} has no method get_state")
    return env.get_state()


def state_of(states: Sequence[dict[str, object]], has_masks: bool) -> dict[str, object]:
    """The state of a vector environment from those of its environments. Leaves are tensors and JSON scalars.

    `has_masks`: whether the environments give action masks.
    """
    return {"has_masks": has_masks, "copies": {f"{i:05d}": state for i, state in enumerate(states)}}


def states_in(state: object, count: int) -> list[Any]:
    """The states of `count` environments, in order.

    Raises:
        ArtifactError: `state` has another number of environments.
    """
    copies = state.get("copies", {}) if isinstance(state, dict) else {}
    if len(copies) != count:
        raise ArtifactError(f"the file holds the state of {len(copies)} environments, there are {count} here")
    return [copies[name] for name in sorted(copies)]


def running_episode(state: Any) -> tuple[float, int]:
    """(return so far, first step of the episode) of one environment, where the current step has the number 0.

    Raises:
        ArtifactError: the return or the length in the state is invalid.
    """
    total, length = state["return"], state["length"]
    if type(total) not in (float, int) or type(length) is not int or not 0 <= length <= MAX_LENGTH:
        raise ArtifactError(f"the file is damaged: an episode has the return {total!r} after {length!r} steps")
    return float(total), -length


def masks_in(state: Any) -> bool:
    """Whether the environments gave action masks. Raises ArtifactError when the entry is not a bool."""
    if type(state["has_masks"]) is not bool:
        raise ArtifactError(f"the file is damaged: environments have masks = {state['has_masks']!r}")
    return bool(state["has_masks"])
