"""The memory of the rows of a replay buffer: its size in bytes, and its allocation at the first row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.columns import NAMED, Columns
from rlsdk.buffers.storage import Empty, FinalPool, OnDisk, allocate, in_memory
from rlsdk.interfaces import BuildContext
from rlsdk.records import Features, Observation
from rlsdk.runtime.memory_budget import require_disk, require_memory
from rlsdk.spaces import choices_of, nbytes


class PreallocatedRows:
    """The memory for the last rows of all environments, [rows, B].

    With `shared` an observation is stored once: the next observation of a row is the observation of the next row in the ring.
    Only the last observations of episodes are stored separately. `gamma` is the value of the column `discount`, which is 0 at
    terminations.
    """

    def __init__(  # each argument is an independent option of a buffer
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        shared: bool,
        directory: str | Path | None,
        columns: Columns,
    ) -> None:
        self.context, self.gamma, self.shared, self.columns = context, gamma, shared, columns
        self.rows = max(capacity // context.num_envs, 1)
        self.ring = self.rows + shared  # the shared ring also holds the newest observation
        self.frames = context.frames if shared else None
        self.space = context.observation_space if self.frames is None else self.frames.single
        self.head = self.filled = self.written = 0
        self.holes = False
        self.storage: dict[str, Features] = {}
        self.finals: FinalPool | None = None
        self.empty: Empty = in_memory(context.device) if directory is None else OnDisk(directory, context.device)
        if directory is not None:
            require_disk(self.size(), directory, "the replay buffer", "lower buffer_size")

    def bytes_required(self) -> int:
        """The bytes of memory of the full ring; 0 with `directory`. Extras without an example count once they are stored."""
        return self.size() if not isinstance(self.empty, OnDisk) else 0

    def size(self) -> int:
        """The bytes of the full ring, in memory or on disk."""
        mask = sum(choices_of(self.context.action_space)) if self.context.masks else 0
        observation = nbytes(self.space) + 1 + mask  # features, is_first, a byte per mask entry
        copies = 1 if self.shared else 2
        scalars = 4 + 4 + 1 + (8 if self.shared else 0)  # reward, discount, valid, slot of a final observation
        scalars += 2 if self.columns.ends else 0
        row = observation * copies + nbytes(self.context.action_space) + scalars
        optional = [leaf[0].numel() * leaf.element_size() for leaf in tree.leaves(self.columns.carry)]
        optional += [1] if self.columns.carry is not None else []
        named = [leaf for name in NAMED for leaf in tree.leaves(self.storage.get(name))]
        if "extras" not in self.storage:
            optional += [leaf.nbytes for leaf in self.columns.like.values()]
        optional += [leaf[0, 0].numel() * leaf.element_size() for leaf in named]
        return self.ring * self.context.num_envs * (row + sum(optional))

    def allocate(self, masks: bool) -> None:
        """Allocate every column except extras and infos, whose shapes the first rows determine. `masks`: with action masks."""
        if self.storage:
            return
        lead, empty = (self.ring, self.context.num_envs), self.empty

        def observations() -> Observation:
            features = allocate(self.space, lead, empty)
            width = sum(choices_of(self.context.action_space))
            mask = empty((*lead, width), torch.bool) if masks else None
            return Observation(features, empty(lead, torch.bool), mask)

        self.storage = {
            "observation": observations(),
            "action": allocate(self.context.action_space, lead, empty),
            "reward": empty(lead, torch.float32),
            "discount": empty(lead, torch.float32),
            "valid": empty(lead, torch.bool),
        }
        if self.columns.ends:
            self.storage |= {name: empty(lead, torch.bool) for name in ("terminated", "truncated")}
        if self.columns.carry is not None:
            self.storage["carry"] = tree.map_tensors(
                lambda leaf: empty((*lead, *leaf.shape[1:]), leaf.dtype).zero_(), self.columns.carry
            )
            self.storage["has_carry"] = empty(lead, torch.bool).zero_()
        if self.shared:
            self.storage["slot"] = empty(lead, torch.int64).fill_(-1)
            self.finals = FinalPool([leaf.flatten(0, 1) for leaf in tree.leaves(self.storage["observation"])])
        else:
            self.storage["next_observation"] = observations()

    def allocate_named(self, column: str, like: Mapping[str, Tensor]) -> None:
        """Allocate a column that is a mapping of names to tensors, such as the extras; `like` has examples [T, B, ..].

        Raises:
            ResourceError: the column does not fit into memory.
        """
        lead = self.ring, self.context.num_envs
        if not isinstance(self.empty, OnDisk):
            needed = sum(leaf[0, 0].numel() * leaf.element_size() for leaf in like.values()) * lead[0] * lead[1]
            require_memory(needed, f"the {column} in the replay buffer", "lower buffer_size, or name what to keep")
        self.storage[column] = {
            name: self.empty((*lead, *leaf.shape[2:]), leaf.dtype).zero_() for name, leaf in like.items()
        }
