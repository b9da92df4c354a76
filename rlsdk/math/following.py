"""The observation after each step of a rollout."""

from __future__ import annotations

from typing import TypeVar

import torch

from rlsdk import tree
from rlsdk.records import Observation, Rollout

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def successors(item: Rollout[CarryT, ExtrasT]) -> Observation:
    """[T, B] the observation each step led to: the next row, or the one its episode ended with."""
    following = tree.map_tensors(
        lambda rows, last: torch.cat([rows[1:], last.unsqueeze(0)]), item.steps.observation, item.last_observation
    )
    if finals := item.final_observations:
        for leaf, final in zip(tree.leaves(following), tree.leaves(finals.observation), strict=True):
            leaf[finals.time, finals.env] = final
    return following
