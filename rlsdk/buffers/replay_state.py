"""The state of a replay buffer: returning it, and restoring it after checks, because it may come from a file."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.columns import MEANINGLESS, NAMED
from rlsdk.buffers.row_storage import RowStorage
from rlsdk.errors import UsageError
from rlsdk.interfaces import State
from rlsdk.interfaces.require_inside import require_inside
from rlsdk.runtime.stored import count_in
from rlsdk.spaces import Space, leaf_spaces, map_leaves

MAX_NAMED = 1000
"""The largest number of names of extras, or of entries of `info`, in a file."""


def taken(rows: RowStorage) -> dict[str, object]:
    """The state of a buffer: its filled rows in the order of the ring, the final observations, and the position in the ring."""
    used = rows.ring if rows.filled == rows.rows else min(rows.filled + rows.shared, rows.ring)
    if rows.shared and rows.storage:
        for name in set(MEANINGLESS) & set(rows.storage):
            tree.map_tensors(lambda leaf: leaf[rows.head].zero_(), rows.storage[name])
    leaves = {
        name: {key: leaf[:used] for key, leaf in (value if name in NAMED else tree.number(value)).items()}
        for name, value in rows.storage.items()
    }
    pool = tree.number(tuple(rows.finals.leaves)) if rows.finals else {}
    position = {"head": rows.head, "filled": rows.filled, "written": rows.written, "holes": rows.holes}
    return {**position, "leaves": leaves, "finals": pool}


def put_back(rows: RowStorage, state: State) -> None:
    """Restore the state that `taken` returned; the buffer must have the same size, columns and spaces.

    Raises:
        UsageError: the state does not fit the buffer, or is damaged. ValueError: a count or value in it is out of range.
    """
    counts = {name: count_in(state, name) for name in ("head", "filled", "written")}
    if type(state["holes"]) is not bool:
        raise UsageError(f"the stored replay buffer has holes = {state['holes']!r}")
    if not counts["filled"]:
        if counts["head"] or counts["written"]:
            raise UsageError("the stored replay buffer has no rows, but a position")
        rows.head = rows.filled = rows.written = 0
        return
    plain = len(list(leaf_spaces(rows.space))) + 1  # features and is_first
    rows.allocate(masks=len(state["leaves"]["observation"]) > plain)
    used = len(state["leaves"]["reward"]["000"])
    _require_position(rows, counts, used)
    for name in {"info", *(("extras",) if rows.columns.extras else ())} & set(state["leaves"]) - set(rows.storage):
        _allocate_named(rows, name, state["leaves"][name], used)
    if set(state["leaves"]) != set(rows.storage):
        raise UsageError(f"the stored replay buffer holds {sorted(state['leaves'])}, this one {sorted(rows.storage)}")
    _fill(rows, state["leaves"], used)
    rows.head, rows.filled, rows.written = counts["head"], counts["filled"], counts["written"]
    rows.holes = state["holes"]
    _require_values(rows, used)
    discount = rows.storage["discount"][:used]
    if bool(((discount != 0.0) & (discount != rows.gamma)).any()):  # the rows were stored with another gamma
        discount.copy_((discount > 0.0).to(discount.dtype) * rows.gamma)
    if rows.finals is not None:
        _put_back_finals(rows, tree.numbered(state["finals"]), used)


def _fill(rows: RowStorage, stored_leaves: Mapping[str, Mapping[str, Tensor]], used: int) -> None:
    """Copy the stored leaves [used, B, ..] into the columns."""
    for name, stored in stored_leaves.items():
        for leaf, value in zip(tree.leaves(rows.storage[name]), tree.numbered(stored), strict=True):
            if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != used:
                raise UsageError(
                    f"the stored replay buffer holds {name} of shape {tuple(value.shape)}, this agent's buffer"
                    f" {tuple(leaf.shape)}; build the agent with the same buffer_size, n_envs and optimize_memory_usage"
                )
            leaf[:used] = value


def use_gamma(rows: RowStorage, gamma: float) -> None:
    """Use another discount factor, also for rows that are already stored.

    Raises:
        UsageError: rows were stored with gamma = 0, so their discounts do not mark the ends of episodes.
    """
    if gamma != rows.gamma and rows.storage:
        if rows.gamma == 0.0 and rows.filled:
            raise UsageError(
                "gamma cannot change from 0: the discounts in the replay buffer are all 0 and do not mark the ends of episodes"
            )
        discount = rows.storage["discount"]
        discount.copy_((discount > 0.0).to(discount.dtype) * gamma)
    rows.gamma = gamma


def _allocate_named(rows: RowStorage, column: str, stored: Mapping[str, Tensor], used: int) -> None:
    """Allocate a column that is a mapping of names to tensors, for the stored tensors [used, B, ..]."""
    lead = used, rows.context.num_envs
    wrong = [name for name, leaf in stored.items() if not isinstance(leaf, Tensor) or tuple(leaf.shape[:2]) != lead]
    if wrong or len(stored) > MAX_NAMED:  # none, if the policy that collected has no extras
        raise UsageError(f"the stored replay buffer has {column} that do not belong to its {used} rows: {wrong[:3]}")
    rows.allocate_named(column, stored)


def _require_position(rows: RowStorage, counts: Mapping[str, int], used: int) -> None:
    head, filled, written = counts["head"], counts["filled"], counts["written"]
    if written < filled or written % rows.ring != head:
        raise UsageError(
            f"the stored replay buffer stands at row {head} after {written} rows, which one of {rows.ring} rows cannot;"
            " build the agent with the same buffer_size, n_envs and optimize_memory_usage"
        )
    whole = rows.ring if filled == rows.rows else min(filled + rows.shared, rows.ring)
    if not (filled <= rows.rows and used == whole):
        raise UsageError(f"the stored replay buffer stands at row {head} with {filled} of {used} rows filled")


def _put_back_finals(rows: RowStorage, stored: list[Tensor], used: int) -> None:
    assert rows.finals is not None
    for leaf, value in zip(rows.finals.leaves, stored, strict=True):
        if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != len(stored[0]):
            raise UsageError(f"the stored replay buffer holds final observations of shape {tuple(value.shape)}")
    slots = rows.storage["slot"][:used].flatten().tolist()
    taken = set(slots) - {-1}
    if len(taken) != len(slots) - slots.count(-1):
        raise UsageError("the stored replay buffer refers to a final observation twice")
    pool = range(len(stored[0]))
    if taken and not (min(taken) in pool and max(taken) in pool):
        raise UsageError(f"the stored replay buffer refers to observations it does not hold: {max(taken)}")
    held = iter([leaf[sorted(taken)] for leaf in stored])
    last = tree.map_tensors(lambda _: next(held), rows.storage["observation"])
    require_inside(rows.space, last.features, "the stored replay buffer's final observations")
    rows.finals.leaves = [leaf.clone() for leaf in stored]
    rows.finals.free = [slot for slot in pool if slot not in taken]


def _require_values(rows: RowStorage, used: int) -> None:
    """Check that stored actions and observations lie inside their spaces. The action of the row that holds only the newest
    observation is set to a valid one."""
    if rows.shared and rows.head < used:

        def reset(_: str, space: Space, leaf: Tensor) -> Tensor:
            leaf[rows.head] = torch.as_tensor(getattr(space, "start", 0)).to(leaf)
            return leaf

        map_leaves(rows.context.action_space, reset, rows.storage["action"])
    what = "the stored replay buffer's"
    filled = {name: tree.map_tensors(lambda leaf: leaf[:used], value) for name, value in rows.storage.items()}
    require_inside(rows.context.action_space, filled["action"], f"{what} actions")
    for name in {"observation", "next_observation"} & set(filled):
        require_inside(rows.space, filled[name].features, f"{what} observations")
