"""Tensors allocated for a space, and a pool for the few observations that cannot stand in the main ring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.spaces import Dict, Space, Tuple, dtype_of, shape_of


def allocate(space: Space, lead: tuple[int, ...], device: str) -> Any:
    """Uninitialised tensors [*lead, ...] for every leaf of a space, nested as the space is."""
    if isinstance(space, Dict):
        return {key: allocate(child, lead, device) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(allocate(child, lead, device) for child in space.spaces)
    return torch.empty((*lead, *shape_of(space)), dtype=getattr(torch, dtype_of(space)), device=device)


class FinalPool:
    """Keeps the observations episodes ended with, by slot; grows as needed, reuses the slots of forgotten rows."""

    def __init__(self, like: list[Tensor], capacity: int = 64) -> None:
        """`like`: one tensor per leaf; the pool's leaves share dtype and trailing shape with `like[i][0]`."""
        self.leaves = [leaf.new_empty((capacity, *leaf.shape[1:])) for leaf in like]
        self.free = list(range(capacity))

    def put(self, observation: list[Tensor]) -> Tensor:
        """Store F rows; returns their slots int64 [F]."""
        count = len(observation[0])
        while len(self.free) < count:
            size = len(self.leaves[0])
            self.leaves = [torch.cat([leaf, torch.empty_like(leaf)]) for leaf in self.leaves]
            self.free += range(size, 2 * size)
        slots = torch.tensor([self.free.pop() for _ in range(count)], dtype=torch.int64, device=self.leaves[0].device)
        for target, source in zip(self.leaves, observation, strict=True):
            target[slots] = source
        return slots

    def release(self, slots: Tensor) -> None:
        """Forget the rows in `slots`; entries of -1 are no slots."""
        self.free += [slot for slot in slots.flatten().tolist() if slot >= 0]

    def patch(self, target: Any, slots: Tensor) -> None:
        """Overwrite the rows of `target` (leaves [N, ..]) whose slot is not -1."""
        rows = (slots >= 0).nonzero().squeeze(-1)
        if len(rows):
            for leaf, kept in zip(tree.leaves(target), self.leaves, strict=True):
                leaf[rows] = kept[slots[rows]]
