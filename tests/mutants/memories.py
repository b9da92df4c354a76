"""Bugs of memories: of replay buffers, and of a memory that a plugin defines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rlsdk.buffers import replay
from rlsdk.records import Transitions
from rlsdk.tree import map_tensors
from tests.mutants.catalog import Patch, mutant


@mutant("buffer.rows-are-true")
def a_time_limit_counts_as_termination(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend

    def broken(self: Any, item: Any) -> None:
        steps = replace(item.steps, terminated=item.steps.terminated | item.steps.truncated)
        extend(self, replace(item, steps=steps))

    patch.setattr(replay.ReplayBuffer, "extend", broken)


@mutant("buffer.rows-are-true")
def bootstrap_from_the_reset_observation(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend
    patch.setattr(
        replay.ReplayBuffer, "extend", lambda self, item: extend(self, replace(item, final_observations=None))
    )


@mutant("buffer.rows-are-true")
def terminations_bootstrap(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend

    def broken(self: Any, item: Any) -> None:
        extend(self, replace(item, steps=replace(item.steps, terminated=torch.zeros_like(item.steps.terminated))))

    patch.setattr(replay.ReplayBuffer, "extend", broken)


@mutant("buffer.length")
def length_counts_rows_not_transitions(patch: Patch) -> None:
    patch.setattr(replay.ReplayBuffer, "__len__", lambda self: self.filled)


@mutant("buffer.size-known-first", alone=True)
def size_forgets_the_second_observation(patch: Patch) -> None:
    true = replay.ReplayBuffer.bytes_required
    patch.setattr(replay.ReplayBuffer, "bytes_required", lambda self: int(true(self) * 0.6))


@mutant("buffer.samples-are-copies")
def samples_are_views(patch: Patch) -> None:
    def view(self: Any, index: Any) -> Any:
        stored, rows = self, torch.arange(len(self))
        names = ("observation", "action", "reward", "discount", "next_observation")
        return Transitions(*(map_tensors(lambda leaf: leaf[: len(rows)], stored.flat(name)) for name in names), rows)

    patch.setattr(replay.ReplayBuffer, "at", view)


@mutant("buffer.state-round-trip")
def the_ring_position_is_not_stored(patch: Patch) -> None:
    true = replay.ReplayBuffer.state_dict
    patch.setattr(replay.ReplayBuffer, "state_dict", lambda self: {**true(self), "head": 0})


@mutant("buffer.samples-are-copies")
def batches_are_given_out_again(patch: Patch) -> None:
    at = replay.ReplayBuffer.at

    def broken(self: Any, index: Any) -> Any:
        key = self.written, tuple(index.tolist())
        cache = self.__dict__.setdefault("given_out", {})
        if key not in cache:
            cache[key] = at(self, index)
        return cache[key]

    patch.setattr(replay.ReplayBuffer, "at", broken)


# --- a memory that a plugin defines ----------------------------------------------------------------------------------


@mutant("buffer.fillers", "dyna", alone=True)
def fillers_become_moves(patch: Patch) -> None:
    before_moves(patch, lambda item: replace(item, steps=replace(item.steps, valid=torch.ones_like(item.steps.valid))))


@mutant("buffer.what-followed", "dyna", alone=True)
def the_last_moves_of_rollouts_lead_nowhere(patch: Patch) -> None:
    before_moves(patch, lambda item: replace(item, last_observation=last_row(item.steps.observation)))


@mutant("buffer.what-followed", "dyna")
def moves_end_at_time_limits(patch: Patch) -> None:
    before_moves(
        patch,
        lambda item: replace(item, steps=replace(item.steps, terminated=item.steps.terminated | item.steps.truncated)),
    )


@mutant("buffer.full-takes-new", "dyna", alone=True)
def a_full_memory_takes_nothing(patch: Patch) -> None:
    from acme_dyna.memory import MoveMemory

    extend = MoveMemory.extend

    def broken(self: Any, item: Any) -> None:
        if len(self) < self.capacity:
            extend(self, item)

    patch.setattr(MoveMemory, "extend", broken)


def before_moves(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Make the memory of moves take the rollout `change(item)`."""
    from acme_dyna.memory import MoveMemory

    extend = MoveMemory.extend
    patch.setattr(MoveMemory, "extend", lambda self, item: extend(self, change(item)))


def last_row(values: Any) -> Any:
    return map_tensors(lambda leaf: leaf[-1], values)
