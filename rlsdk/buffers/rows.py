"""The rows of a replay buffer: one ring buffer for each leaf of the collected steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.columns import PLAIN
from rlsdk.buffers.frames import newest_frames
from rlsdk.buffers.last_observations import keep_interrupted, store_finals
from rlsdk.buffers.optional_columns import extend_optional, without_masks
from rlsdk.buffers.preallocated_rows import PreallocatedRows
from rlsdk.buffers.ring import Ring
from rlsdk.records import Features, Observation, Rollout, successors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class RowStorage(PreallocatedRows):
    """A ring buffer of the last rows [rows, B] of all environments. It is read at flat positions, row * B + environment."""

    def __len__(self) -> int:
        return self.filled * self.context.num_envs

    @torch.no_grad()
    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; they replace the oldest rows of a full buffer.

        Raises:
            UsageError: the extras, infos or carry differ from those of earlier rows in name, shape or dtype.
        """
        if self.context.ignores_masks and item.steps.observation.action_mask is not None:
            item = without_masks(item)
        item = item if self.frames is None else newest_frames(self.frames, item)
        if not self.storage:
            self.allocate(masks=item.steps.observation.action_mask is not None)
        steps, store, count = item.steps, self.storage, len(item.steps.reward)
        end = self.head + count  # writing to a slice is faster than to an index
        where = slice(self.head, end) if end <= self.ring else self._places(self.head, count)
        if self.shared and self.filled:
            keep_interrupted(self, steps.observation)
        pick = tree.layout(store["observation"]).pick
        _assign(pick(store["observation"]), where, pick(steps.observation))
        store["action"][where] = steps.action.to(store["action"].dtype)
        store["reward"][where] = steps.reward
        store["discount"][where] = torch.full_like(steps.reward, self.gamma).masked_fill_(steps.terminated, 0.0)
        store["valid"][where] = steps.valid
        if self.columns is not PLAIN or steps.info or "info" in store:
            extend_optional(self, self._places(self.head, count), item)
        self.holes = self.holes or not bool(steps.valid.all())
        self.head, self.written = (self.head + count) % self.ring, self.written + count
        if self.shared:
            store_finals(self, self._places(self.head - count, count), item)
        else:
            single = count == 1 and item.final_observations is None
            following = tree.unsqueezed(item.last_observation) if single else successors(item)
            _assign(pick(store["next_observation"]), where, pick(following))
        self.filled = min(self.filled + count, self.rows)

    def _places(self, first: int, count: int) -> Tensor:
        """The `count` rows from `first` on, int64 [count]."""
        return (first + torch.arange(count, device=self.context.device)) % self.ring

    @property
    def oldest(self) -> int:
        """The oldest stored row."""
        return (self.head + self.shared) % self.ring if self.filled == self.rows else 0

    @property
    def walk(self) -> Ring:
        """The `Ring` that finds earlier and later steps of episodes."""
        return Ring(self.ring, self.context.num_envs, self.storage["observation"].is_first.flatten())

    def flat(self, name: str) -> Features:
        """Views of a column with rows and environments in one dimension, [rows * B, ..]."""
        return tree.map_tensors(lambda leaf: leaf.flatten(0, 1), self.storage[name])

    def take(self, name: str, index: Tensor) -> Features:
        """Copies [N, ..] of a column at flat positions int64 [N] (row * B + environment)."""
        column = self.storage[name]
        if type(column) is Tensor:  # the most frequent case
            return column.flatten(0, 1).index_select(0, index)
        return tree.map_tensors(lambda leaf: leaf.flatten(0, 1).index_select(0, index), column)

    def take_flags(self, index: Tensor, features: Features) -> Observation:
        """The observations [N] at flat positions int64 [N], with `features` [N, ..] instead of the stored ones."""
        column: Observation = self.storage["observation"]
        mask = column.action_mask
        return Observation(
            features,
            column.is_first.flatten().index_select(0, index),
            None if mask is None else mask.flatten(0, 1).index_select(0, index),
        )

    def successors(self, index: Tensor) -> Observation:
        """The next observations [N] of the steps at flat positions int64 [N]; only their newest frame if frames are shared."""
        if not self.shared:
            following: Observation = self.take("next_observation", index)
            return following
        following = self.take("observation", self.walk.after(index))
        self.put_finals(following, index)
        return following

    def put_finals(self, following: Observation, index: Tensor) -> None:
        """Overwrite the next observations [N] of those steps (flat positions int64 [N]) that ended an episode."""
        assert self.finals is not None
        self.finals.patch(following, self.take("slot", index))


def _assign(columns: Iterable[Tensor], where: Tensor | slice, values: Iterable[Tensor]) -> None:
    for column, value in zip(columns, values, strict=True):
        column[where] = value
