"""Converts sequences to rows, one sequence after the other: the layout in which recurrent policies evaluate them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.records import Sequences, StepData

CarryT = TypeVar("CarryT")


def rows_in_order(batch: Sequences[CarryT]) -> tuple[StepData[Mapping[str, Tensor]], Tensor, Tensor]:
    """(steps [N], starts: bool [N], loss mask: bool [N]) of sequences [T, S], without the padding. `starts` is True at the
    first row of a sequence."""
    starts = torch.zeros_like(batch.steps.valid)
    starts[0] = True
    valid = batch.steps.valid.T.flatten()
    found: tuple[StepData[Mapping[str, Tensor]], Tensor, Tensor] = tree.map_tensors(
        lambda leaf: leaf.transpose(0, 1).flatten(0, 1)[valid], (batch.steps, starts, batch.loss_mask)
    )
    return found
