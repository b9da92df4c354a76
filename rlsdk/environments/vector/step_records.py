"""Conversion of the arrays of a step to the records that algorithms read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.adapters.nested import tensors_of
from rlsdk.environments.vector.step_arrays import Ended, StepArrays
from rlsdk.records import EnvStep, Episode, Observation


class StepRecords:
    """Converts the arrays of a step to records of tensors.

    `reused`: whether the next step writes to the same memory, so that observations must be copied. Tensors that are equal at
    most steps are made once.
    """

    def __init__(self, arrays: StepArrays, *, reused: bool = True) -> None:
        self.arrays, self.reused = arrays, reused
        count = len(arrays.reward)
        self._first = torch.ones(count, dtype=torch.bool)
        self._none = torch.zeros(count, dtype=torch.bool)
        self.all_valid = torch.ones(count, dtype=torch.bool)

    def _observation(self, is_first: Tensor, has_masks: bool) -> Observation:
        """The observation in the arrays, with `is_first` bool [B]."""
        seen, fresh = self.arrays.observation, self.reused  # for a single array, the call of `tensors_of` is saved
        features = torch.from_numpy(seen) if type(seen) is np.ndarray and not fresh else tensors_of(seen, fresh=fresh)
        return Observation(features, is_first, torch.from_numpy(self.arrays.mask.copy()) if has_masks else None)

    def first(self, has_masks: bool) -> Observation:
        """The observation after a reset."""
        return self._observation(self._first, has_masks)

    def step(self, ended: Ended | None, has_masks: bool, valid: Tensor | None = None) -> EnvStep:
        """The record of a step. Rows that are not `valid` [B] start a new episode, although no episode ended in them."""
        reward = torch.from_numpy(self.arrays.reward.copy())
        valid = self.all_valid if valid is None else valid
        if ended is None:
            is_first = self._none if valid is self.all_valid else ~valid
            observation = self._observation(is_first, has_masks)
            return EnvStep(observation, reward, self._none, self._none, valid)
        return self._ended(ended, reward, valid, has_masks)

    def _ended(self, ended: Ended, reward: Tensor, valid: Tensor, has_masks: bool) -> EnvStep:
        """The record of a step in which episodes ended, for `reward` float [B] and `valid` bool [B]."""
        arrays = self.arrays
        terminated, truncated = torch.from_numpy(arrays.terminated.copy()), torch.from_numpy(arrays.truncated.copy())
        is_first = torch.from_numpy(arrays.terminated | arrays.truncated)
        if valid is not self.all_valid:
            is_first |= ~valid
        observation = self._observation(is_first, has_masks)
        mask = None if ended.mask is None else torch.from_numpy(ended.mask)
        later = torch.from_numpy(np.zeros(len(ended.rows), np.bool_))
        seen = ended.observation
        features = torch.from_numpy(seen) if type(seen) is np.ndarray else tensors_of(seen)
        final = Observation(features, later, mask)
        episodes = tuple(map(Episode, ended.rows, ended.returns, ended.lengths, ended.successes))
        return EnvStep(observation, reward, terminated, truncated, valid, final, episodes)
