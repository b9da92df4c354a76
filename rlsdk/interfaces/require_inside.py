"""Checks that tensors from a file lie inside the spaces of an environment."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.records import Features
from rlsdk.spaces import Discrete, MultiBinary, MultiDiscrete, Space, map_leaves


def require_inside(space: Space, value: Features, what: str) -> None:
    """Check that Discrete, MultiDiscrete and MultiBinary leaves of `value` [.., *leaf], nested like `space`, lie inside
    it.

    Encoders and losses use these values as indices.

    Raises:
        ValueError: a value lies outside; the message begins with `what`.
    """

    def check(path: str, leaf: Space, rows: Tensor) -> Tensor:
        if isinstance(leaf, MultiBinary):
            low, high = torch.tensor(0), torch.tensor(1)
        elif isinstance(leaf, Discrete | MultiDiscrete):
            counts = leaf.n if isinstance(leaf, Discrete) else leaf.nvec
            low = torch.as_tensor(leaf.start)
            high = low + torch.as_tensor(counts) - 1
        else:
            return rows
        if bool(((rows < low.to(rows.device)) | (rows > high.to(rows.device))).any()):
            raise ValueError(f"{what} lie outside {leaf}")
        return rows

    map_leaves(space, check, value)
