"""A check that recorded actions are among those that their masks allow."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.records import Features
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, choices_of


def forbidden_row(space: Space, actions: Features, masks: Tensor) -> int | None:
    """The first of S steps whose mask forbids its action; None if there is none.

    Args:
        space: the action space.
        actions: [S, ..] in environment units, nested like the space.
        masks: bool [S, A], True where an action is allowed.
    """
    sizes = torch.tensor(choices_of(space))
    columns = sizes.cumsum(0) - sizes + _choices(space, actions)
    wrong = ~masks.gather(1, columns).all(1)
    return int(wrong.nonzero()[0]) if bool(wrong.any()) else None


def _choices(space: Space, actions: Features) -> Tensor:
    """The actions as choices that count from 0, int64 [S, choices], in the order of masks."""
    if isinstance(space, Dict):
        return torch.cat([_choices(child, actions[key]) for key, child in space.spaces.items()], 1)
    if isinstance(space, Tuple):
        return torch.cat([_choices(child, part) for child, part in zip(space.spaces, actions, strict=True)], 1)
    if isinstance(space, Box):
        return torch.zeros(len(actions), 0, dtype=torch.int64)
    chosen: Tensor = actions.long().reshape(len(actions), -1)
    return chosen - torch.tensor(space.start) if isinstance(space, Discrete | MultiDiscrete) else chosen
