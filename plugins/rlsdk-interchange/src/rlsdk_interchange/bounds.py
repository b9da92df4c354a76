"""Clip actions to the bounds of an action space, as environments do."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.records import Features
from rlsdk.spaces import Box, Space, map_leaves


def within_bounds(space: Space, action: Features) -> Features:
    """Return the actions [N, *shape], nested as `space`. Those of Box spaces are clipped to their bounds."""

    def clipped(path: str, leaf: Space, rows: Tensor) -> Tensor:
        """Return the rows [N, *shape] of one leaf, clipped if the leaf is a Box."""
        if not isinstance(leaf, Box):
            return rows
        low, high = (torch.from_numpy(bound.copy()) for bound in (leaf.low, leaf.high))
        return rows.reshape(-1, *leaf.shape).clamp(low.to(rows.dtype), high.to(rows.dtype))

    return map_leaves(space, clipped, action, path="action")
