"""Tensors allocated for a space, and a pool for the few observations that do not fit into the main ring."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import SettingsError
from rlsdk.records import Features, Observation
from rlsdk.spaces import Dict, Space, Tuple, dtype_of, shape_of

Empty = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""Makes an uninitialised tensor of this shape and dtype."""


def in_memory(device: str) -> Empty:
    """Tensors of the device's own memory."""
    return lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device)


class OnDisk:
    """Tensors whose memory is a file each, in a folder of their own below `directory` that goes when they go."""

    def __init__(self, directory: str | Path, device: str) -> None:
        if device != "cpu":
            raise SettingsError(f"a replay buffer on disk needs device = 'cpu', not {device!r}")
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
    """Uninitialised tensors [*lead, ...] for every leaf of a space, nested as the space is."""
    if isinstance(space, Dict):
        return {key: allocate(child, lead, empty) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(allocate(child, lead, empty) for child in space.spaces)
    return empty((*lead, *shape_of(space)), getattr(torch, dtype_of(space)))


class FinalPool:
    """The observations episodes ended with, by slot; grows as needed, reuses the slots of forgotten rows."""

    def __init__(self, like: list[Tensor], capacity: int = 64) -> None:
        """`like`: one tensor per leaf; the pool's leaves share dtype and trailing shape with `like[i][0]`."""
        self.leaves = [leaf.new_zeros((capacity, *leaf.shape[1:])) for leaf in like]
        self.free = list(range(capacity))  # a heap: which slot comes next depends on which are in use alone

    def put(self, observation: list[Tensor]) -> Tensor:
        """Store F rows; returns their slots int64 [F]."""
        count = len(observation[0])
        while len(self.free) < count:
            size = len(self.leaves[0])
            self.leaves = [torch.cat([leaf, torch.zeros_like(leaf)]) for leaf in self.leaves]
            self.free += range(size, 2 * size)  # all larger than those before: still a heap
        slots = torch.tensor(
            [heappop(self.free) for _ in range(count)], dtype=torch.int64, device=self.leaves[0].device
        )
        for target, source in zip(self.leaves, observation, strict=True):
            target[slots] = source
        return slots

    def release(self, slots: Tensor) -> None:
        """Forget the rows in `slots` int64 [..]; entries of -1 are not slots."""
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
