"""Writes the columns of a replay buffer that not every algorithm needs: ends of episodes, carries, extras, infos, masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.named_extras import named_extras
from rlsdk.buffers.preallocated_rows import PreallocatedRows
from rlsdk.errors import UsageError
from rlsdk.records import Observation, Rollout

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def extend_optional(rows: PreallocatedRows, where: Tensor, item: Rollout[CarryT, ExtrasT]) -> None:
    """Write the steps of a rollout into the additional columns (`rows.columns`, and `info`) at the rows `where` int64 [T]."""
    store = rows.storage
    if rows.columns.ends:
        store["terminated"][where], store["truncated"][where] = item.steps.terminated, item.steps.truncated
    if rows.columns.carry is not None:
        carry, given = tree.leaves(store["carry"]), tree.leaves(item.initial_carry)
        if [leaf.shape[1:] for leaf in carry] != [leaf.shape for leaf in given]:
            raise UsageError(
                f"the replay buffer stores carries of shapes {[list(leaf.shape[1:]) for leaf in carry]}, the policy that"
                f" collects gives {[list(leaf.shape) for leaf in given]}; build the memory with its initial_carry"
            )
        for target, source in zip(carry, given, strict=True):
            target[where[0]] = source
        store["has_carry"][where] = False
        store["has_carry"][where[0]] = True
    if rows.columns.extras:
        _extend_named(rows, "extras", where, named_extras(item.steps.extras, rows.columns.extras))
    if item.steps.info or "info" in store:
        _extend_named(rows, "info", where, item.steps.info)


def _extend_named(rows: PreallocatedRows, column: str, where: Tensor, given: Mapping[str, Tensor]) -> None:
    """Write named tensors [T, B, ..] into the rows `where` int64 [T] of a column that is a mapping of names to tensors."""
    if column not in rows.storage:
        if rows.filled:
            raise UsageError(
                f"the replay buffer holds rows without {column}; clear it before steps have {sorted(given)}"
            )
        rows.allocate_named(column, given)
    stored: Mapping[str, Tensor] = rows.storage[column]
    _require_same(column, stored, given)
    for name, leaf in stored.items():
        leaf[where] = given[name]


def _require_same(column: str, stored: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise UsageError unless `given` [T, B, ..] has the names, shapes and dtypes of `stored` [rows, B, ..]."""
    mine = {name: (leaf.shape[2:], leaf.dtype) for name, leaf in stored.items()}
    theirs = {name: (leaf.shape[2:], leaf.dtype) for name, leaf in given.items()}
    if mine != theirs:
        wrong = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        raise UsageError(
            f"the {column} {wrong} of these steps are not those of the rows before, in name, shape or dtype; give the same at"
            " every step, or name the extras that the memory stores"
        )


def without_masks(item: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
    """The rollout without its action masks."""

    def bare(observation: Observation) -> Observation:
        return replace(observation, action_mask=None)

    finals = item.final_observations
    return replace(
        item,
        steps=replace(item.steps, observation=bare(item.steps.observation)),
        last_observation=bare(item.last_observation),
        final_observations=None if finals is None else replace(finals, observation=bare(finals.observation)),
    )
