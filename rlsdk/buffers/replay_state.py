"""The contents of a replay memory, taken out and put back; those of a file are checked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.space_checks import require_inside
from rlsdk.errors import UsageError
from rlsdk.math.stored import count_in
from rlsdk.spaces import Space, leaf_spaces, map_leaves

if TYPE_CHECKING:
    from rlsdk.buffers.replay import ReplayBuffer


def taken(buffer: ReplayBuffer) -> dict[str, Any]:
    """The filled rows, oldest position first as they stand in the ring, and the ring's position."""
    used = buffer.ring if buffer.filled == buffer.rows else min(buffer.filled + buffer.shared, buffer.ring)
    if buffer.shared and buffer.storage:
        for name in ("action", "reward", "discount", "valid"):  # of this row only the observation means anything
            tree.map_tensors(lambda leaf: leaf[buffer.head].zero_(), buffer.storage[name])
    leaves = {
        name: {key: leaf[:used] for key, leaf in tree.number(value).items()} for name, value in buffer.storage.items()
    }
    pool = tree.number(tuple(buffer.finals.leaves)) if buffer.finals else {}
    position = {"head": buffer.head, "filled": buffer.filled, "written": buffer.written, "holes": buffer.holes}
    return {**position, "leaves": leaves, "finals": pool}


def put_back(buffer: ReplayBuffer, state: Mapping[str, Any]) -> None:
    """Put back what `taken` took out; the buffer must have been built with the same size and spaces.

    Raises:
        UsageError: it was not.
    """
    counts = {name: count_in(state, name) for name in ("head", "filled", "written")}
    if type(state["holes"]) is not bool:
        raise UsageError(f"the stored replay buffer has holes = {state['holes']!r}")
    if not counts["filled"]:
        if counts["head"] or counts["written"]:
            raise UsageError("the stored replay buffer has no rows, but a position")
        buffer.head = buffer.filled = buffer.written = 0
        return
    plain = len(list(leaf_spaces(buffer.space))) + 1  # features and is_first
    buffer.allocate(masks=len(state["leaves"]["observation"]) > plain)
    _require_position(buffer, counts, len(state["leaves"]["reward"]["000"]))
    if set(state["leaves"]) != set(buffer.storage):
        raise UsageError(f"the stored replay buffer holds {sorted(state['leaves'])}, this one {sorted(buffer.storage)}")
    used = len(state["leaves"]["reward"]["000"])
    for name, stored in state["leaves"].items():
        for leaf, value in zip(tree.leaves(buffer.storage[name]), tree.numbered(stored), strict=True):
            if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != used:
                raise UsageError(
                    f"the stored replay buffer holds {name} of shape {tuple(value.shape)}, this agent's buffer"
                    f" {tuple(leaf.shape)}; build the agent with the same buffer_size, n_envs and optimize_memory_usage"
                )
            leaf[:used] = value
    buffer.head, buffer.filled, buffer.written = counts["head"], counts["filled"], counts["written"]
    buffer.holes = state["holes"]
    _require_values(buffer, used)
    discount = buffer.storage["discount"][:used]
    if bool(((discount != 0.0) & (discount != buffer.gamma)).any()):  # filled under another gamma
        discount.copy_((discount > 0.0).to(discount.dtype) * buffer.gamma)
    if buffer.finals is not None:
        _put_back_finals(buffer, tree.numbered(state["finals"]), used)


def reconfigure(buffer: ReplayBuffer, config: Any) -> None:
    """Use `gamma` and `n_steps` of new settings, for the stored rows too.

    Raises:
        UsageError: rows were stored with gamma = 0, which does not say which of them ended an episode.
    """
    gamma = float(config.gamma)
    if gamma != buffer.gamma and buffer.storage:
        if buffer.gamma == 0.0 and buffer.filled:
            raise UsageError(
                "gamma cannot change from 0: the rows of the replay memory do not say which of them ended an episode"
            )
        discount = buffer.storage["discount"]
        discount.copy_((discount > 0.0).to(discount.dtype) * gamma)
    buffer.gamma, buffer.n_steps = gamma, min(getattr(config, "n_steps", buffer.n_steps), buffer.rows)


def _require_position(buffer: ReplayBuffer, counts: Mapping[str, int], used: int) -> None:
    head, filled, written = counts["head"], counts["filled"], counts["written"]
    if written < filled or written % buffer.ring != head:
        raise UsageError(
            f"the stored replay buffer stands at row {head} after {written} rows, which one of {buffer.ring} rows cannot;"
            " build the agent with the same buffer_size, n_envs and optimize_memory_usage"
        )
    whole = buffer.ring if filled == buffer.rows else min(filled + buffer.shared, buffer.ring)
    if not (filled <= buffer.rows and used == whole):
        raise UsageError(f"the stored replay buffer stands at row {head} with {filled} of {used} rows filled")


def _put_back_finals(buffer: ReplayBuffer, stored: list[Tensor], used: int) -> None:
    assert buffer.finals is not None
    for leaf, value in zip(buffer.finals.leaves, stored, strict=True):
        if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != len(stored[0]):
            raise UsageError(f"the stored replay buffer holds final observations of shape {tuple(value.shape)}")
    slots = buffer.storage["slot"][:used].flatten().tolist()
    taken = set(slots) - {-1}
    if len(taken) != len(slots) - slots.count(-1):
        raise UsageError("the stored replay buffer refers to a final observation twice")
    pool = range(len(stored[0]))
    if taken and not (min(taken) in pool and max(taken) in pool):
        raise UsageError(f"the stored replay buffer refers to observations it does not hold: {max(taken)}")
    held = iter([leaf[sorted(taken)] for leaf in stored])
    last = tree.map_tensors(lambda _: next(held), buffer.storage["observation"])
    require_inside(buffer.space, last.features, "the stored replay buffer's final observations")
    buffer.finals.leaves = [leaf.clone() for leaf in stored]
    buffer.finals.free = [slot for slot in pool if slot not in taken]


def _require_values(buffer: ReplayBuffer, used: int) -> None:
    """Discrete values must lie inside their spaces. A row that only holds the newest observation has no action."""
    if buffer.shared and buffer.head < used:

        def reset(_: str, space: Space, leaf: Tensor) -> Tensor:
            leaf[buffer.head] = torch.as_tensor(getattr(space, "start", 0)).to(leaf)
            return leaf

        map_leaves(buffer.facts.action_space, reset, buffer.storage["action"])
    what = "the stored replay buffer's"
    filled = {name: tree.map_tensors(lambda leaf: leaf[:used], value) for name, value in buffer.storage.items()}
    require_inside(buffer.facts.action_space, filled["action"], f"{what} actions")
    for name in {"observation", "next_observation"} & set(filled):
        require_inside(buffer.space, filled[name].features, f"{what} observations")
