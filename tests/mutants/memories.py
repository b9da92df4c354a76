"""Bugs of memories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlsdk.buffers import replay
from tests.mutants.catalogue import Patch, mutant


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


@mutant("buffer.size-known-first")
def size_forgets_the_second_observation(patch: Patch) -> None:
    true = replay.ReplayBuffer.bytes_required
    patch.setattr(replay.ReplayBuffer, "bytes_required", lambda self: int(true(self) * 0.6))


@mutant("buffer.samples-are-copies")
def samples_are_views(patch: Patch) -> None:
    def view(self: Any, index: Any) -> Any:
        from rlsdk.records import Transitions
        from rlsdk.tree import map_tensors

        flat = {n: map_tensors(lambda leaf: leaf.flatten(0, 1)[: self.filled], v) for n, v in self.storage.items()}
        rows = torch.arange(self.filled)
        return Transitions(
            flat["observation"], flat["action"], flat["reward"], flat["discount"], flat["next_observation"], rows
        )

    patch.setattr(replay.ReplayBuffer, "at", view)


@mutant("buffer.state-round-trip")
def the_ring_position_is_not_stored(patch: Patch) -> None:
    true = replay.ReplayBuffer.state_dict
    patch.setattr(replay.ReplayBuffer, "state_dict", lambda self: {**true(self), "filled": self.filled - 1})


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
