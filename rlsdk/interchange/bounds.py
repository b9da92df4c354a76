"""Actions as environments get them."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.records import Features
from rlsdk.spaces import Box, Space, map_leaves


def within_bounds(space: Space, action: Features) -> Features:
    """Actions [N, *shape], nested as `space`, with those of Boxes clipped to their bounds; N rows each."""

    def clipped(path: str, leaf: Space, rows: Tensor) -> Tensor:
        """Rows [N, *shape]."""
        if not isinstance(leaf, Box):
            return rows
        low, high = (torch.from_numpy(bound.copy()) for bound in (leaf.low, leaf.high))
        return rows.reshape(-1, *leaf.shape).clamp(low.to(rows.dtype), high.to(rows.dtype))

    return map_leaves(space, clipped, action, path="action")
