"""Rows in order of time, cut into pieces: where each begins, and where in it a row stands."""

from __future__ import annotations

import torch
from torch import Tensor


def pieces_of(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(first row of each piece [P], the piece a row belongs to [N], the row's place in it [N]), all int64.

    Args:
        starts: bool [N], True where a piece begins, as the first row does.
    """
    first_rows = starts.nonzero().squeeze(-1)
    piece = starts.cumsum(0) - 1
    return first_rows, piece, torch.arange(len(starts), device=starts.device) - first_rows[piece]
