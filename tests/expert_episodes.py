"""Recorded episodes of an expert whose action depends on one of two numbers: data sets that tests learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlsdk.environments import to_space
from rlsdk_datasets import RecordedEpisode, write_episodes

SEEN = spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICE, VECTOR = spaces.Discrete(2, start=3), spaces.Box(-2.0, 2.0, (1,), np.float32)


def recorded(
    path: Path, action_space: spaces.Space[Any], episodes: int = 6, *, masks: bool = False, steps: int = 40
) -> Path:
    """Record episodes of an expert whose action depends on the first of the two numbers in an observation."""
    dice, made = torch.Generator().manual_seed(0), []
    for seed in range(episodes):
        seen = torch.rand(steps + 1, 2, generator=dice) * 2 - 1
        action = (seen[:-1, 0] > 0).long() + 3 if isinstance(action_space, spaces.Discrete) else 1.5 * seen[:-1, :1]
        allowed = torch.ones(steps + 1, 2, dtype=torch.bool) if masks else None
        rewards = torch.ones(steps)
        made.append(RecordedEpisode(seen, action, rewards, terminated=seed % 2 == 0, action_masks=allowed, seed=seed))
    return write_episodes(path, made, to_space(SEEN), to_space(action_space))
