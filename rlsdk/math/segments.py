"""Segments of consecutive rows in order of time: where each segment begins, and the position of each row in its segment."""

from __future__ import annotations

import torch
from torch import Tensor


def segments_of(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(first row of each segment [S], segment number of each row [N], position of each row in its segment [N]), all int64.

    Args:
        starts: bool [N], True where a segment begins. The first row must be True.
    """
    first_rows = starts.nonzero().squeeze(-1)
    segment = starts.cumsum(0) - 1
    return first_rows, segment, torch.arange(len(starts), device=starts.device) - first_rows[segment]
