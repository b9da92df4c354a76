"""Arrays that copies wrote, as the records algorithms read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlsdk.environments.copies import Ended, StepArrays
from rlsdk.environments.observations import Stacker
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space


class StepRecords:
    """Copies arrays into fresh tensors; what is the same at nearly every step is made once."""

    def __init__(self, observation_space: Space, arrays: StepArrays) -> None:
        self.arrays, self._stacker = arrays, Stacker(observation_space)
        count = len(arrays.reward)
        self._first = torch.ones(count, dtype=torch.bool)
        self._none = torch.zeros(count, dtype=torch.bool)
        self.all_valid = torch.ones(count, dtype=torch.bool)

    def _features(self) -> Any:
        return self._stacker.tensors(self.arrays.observation, fresh=True)

    def _mask(self, has_masks: bool) -> Any:
        return torch.from_numpy(self.arrays.mask.copy()) if has_masks else None

    def first(self, has_masks: bool) -> Observation:
        """What a reset gave."""
        return Observation(self._features(), self._first, self._mask(has_masks))

    def step(self, ended: Ended | None, has_masks: bool, valid: torch.Tensor | None = None) -> EnvStep:
        """What a step gave; rows that are not `valid` [B] start an episode without having ended one."""
        arrays, reward = self.arrays, torch.from_numpy(self.arrays.reward.copy())
        valid = self.all_valid if valid is None else valid
        if ended is None:
            is_first = self._none if valid is self.all_valid else ~valid
            observation = Observation(self._features(), is_first, self._mask(has_masks))
            return EnvStep(observation, reward, self._none, self._none, valid)
        terminated, truncated = torch.from_numpy(arrays.terminated.copy()), torch.from_numpy(arrays.truncated.copy())
        is_first = torch.from_numpy(arrays.terminated | arrays.truncated)
        if valid is not self.all_valid:
            is_first |= ~valid
        observation = Observation(self._features(), is_first, self._mask(has_masks))
        mask = None if ended.mask is None else torch.from_numpy(ended.mask)
        later = torch.from_numpy(np.zeros(len(ended.rows), np.bool_))
        final = Observation(self._stacker.tensors(ended.observation), later, mask)
        episodes = tuple(map(Episode, ended.rows, ended.returns, ended.lengths, ended.successes))
        return EnvStep(observation, reward, terminated, truncated, valid, final, episodes)
