"""Rows in order of time, cut into segments: where each begins, and the position of a row in it."""

from __future__ import annotations

import torch
from torch import Tensor


def segments_of(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(first row of each segment [S], the segment a row belongs to [N], the row's place in it [N]), all int64.

    Args:
        starts: bool [N], True where a segment begins, as the first row does.
    """
    first_rows = starts.nonzero().squeeze(-1)
    segment = starts.cumsum(0) - 1
    return first_rows, segment, torch.arange(len(starts), device=starts.device) - first_rows[segment]
