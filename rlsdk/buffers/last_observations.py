"""The last observations of episodes, in replay buffers that store each observation once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.records import Observation, Rollout

if TYPE_CHECKING:
    from rlsdk.buffers.preallocated_rows import PreallocatedRows

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def keep_interrupted(rows: PreallocatedRows, observation: Observation) -> None:
    """Store the newest observation as a final one where an environment was reset before its episode ended: the first row of
    the new episode, `observation` [T, B, ..], will overwrite it."""
    assert rows.finals is not None
    held = [leaf[rows.head] for leaf in tree.leaves(rows.storage["observation"])]
    first = [leaf[0] for leaf in tree.leaves(observation)]
    pairs = zip(held, first, strict=True)
    differs = torch.stack([(old != new).flatten(1).any(1) if old.dim() > 1 else old != new for old, new in pairs]).any(
        0
    )
    newest = rows.storage["slot"][rows.head - 1]
    envs = (differs & (newest < 0)).nonzero().squeeze(-1)
    if len(envs):
        newest[envs] = rows.finals.put([leaf[envs] for leaf in held])


def store_finals(rows: PreallocatedRows, where: Tensor, item: Rollout[CarryT, ExtrasT]) -> None:
    """Store the last observations of episodes, and the newest observation; `where` int64 [T] are the rows of `item`."""
    assert rows.finals is not None
    slot = rows.storage["slot"]
    touched = torch.cat([where, where.new_tensor([rows.head])])
    rows.finals.release(slot[touched])
    slot[touched] = -1
    newest = tree.leaves(item.last_observation)
    for target, source in zip(tree.leaves(rows.storage["observation"]), newest, strict=True):
        target[rows.head] = source
    if finals := item.final_observations:
        slot[where[finals.time], finals.env] = rows.finals.put(tree.leaves(finals.observation))
