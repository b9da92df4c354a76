"""Allocates tensors for a space, and stores last observations of episodes outside the main ring."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import SettingsError, require_file_name
from rlsdk.records import Features, Observation
from rlsdk.spaces import Dict, Space, Tuple, dtype_of, shape_of

Empty = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""A function that makes an uninitialised tensor of a shape and dtype."""


def in_memory(device: str) -> Empty:
    """A function that allocates tensors in the memory of `device`."""
    return lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device)


class OnDisk:
    """Allocates tensors that are memory-mapped files, in a new folder below `directory` that is deleted with this object."""

    def __init__(self, directory: str | Path, device: str) -> None:
        if device != "cpu":
            raise SettingsError(f"a replay buffer on disk needs device = 'cpu', not {device!r}")
        require_file_name(directory)
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self.folder = tempfile.TemporaryDirectory(prefix="replay-", dir=directory)
        except OSError as error:
            raise SettingsError(
                f"the replay buffer's directory {str(directory)!r} cannot be used: {error.strerror or error}; choose a"
                " writable folder"
            ) from None
        self.files = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size, self.files = math.prod(shape), self.files + 1
        if not size:
            return torch.empty(shape, dtype=dtype)
        path = Path(self.folder.name) / f"{self.files:03d}"
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)


def allocate(space: Space, lead: tuple[int, ...], empty: Empty) -> Features:
    """Uninitialised tensors [*lead, ...] for every leaf of a space, nested like the space."""
    if isinstance(space, Dict):
        return {key: allocate(child, lead, empty) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(allocate(child, lead, empty) for child in space.spaces)
    return empty((*lead, *shape_of(space)), getattr(torch, dtype_of(space)))


class FinalPool:
    """Stores the last observations of episodes in numbered slots. It grows if needed and reuses slots of overwritten rows."""

    def __init__(self, like: list[Tensor], capacity: int = 64) -> None:
        """`like`: one tensor [.., *shape] per leaf; leaf i of the pool has the dtype and shape of `like[i][0]`."""
        self.leaves = [leaf.new_zeros((capacity, *leaf.shape[1:])) for leaf in like]
        self.free = list(range(capacity))  # a heap, so that the next slot depends only on the slots in use

    def put(self, observation: list[Tensor]) -> Tensor:
        """Store F observations, given by leaf, and return their slots int64 [F]."""
        count = len(observation[0])
        while len(self.free) < count:
            size = len(self.leaves[0])
            self.leaves = [torch.cat([leaf, torch.zeros_like(leaf)]) for leaf in self.leaves]
            self.free += range(size, 2 * size)  # larger than all others, so the list is still a heap
        slots = torch.tensor(
            [heappop(self.free) for _ in range(count)], dtype=torch.int64, device=self.leaves[0].device
        )
        for target, source in zip(self.leaves, observation, strict=True):
            target[slots] = source
        return slots

    def release(self, slots: Tensor) -> None:
        """Free the slots int64 [..]; entries of -1 are ignored."""
        for slot in slots.flatten().tolist():
            if slot >= 0:
                heappush(self.free, slot)

    def patch(self, target: Observation, slots: Tensor) -> None:
        """Overwrite the rows of `target` (leaves [N, ..]) whose slot (int64 [N]) is not -1."""
        rows = (slots >= 0).nonzero().squeeze(-1)
        if len(rows):
            chosen = slots.index_select(0, rows)
            for leaf, final in zip(tree.leaves(target), self.leaves, strict=True):
                leaf.index_copy_(0, rows, final.index_select(0, chosen))
