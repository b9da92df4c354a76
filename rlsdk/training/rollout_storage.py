"""The memory of rollouts that are written in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.records import EnvStep, Episode, Observation, Rollout, StepData
from rlsdk.training.stepwise import Finals, join_finals

SHARED_BYTES, SHARED_ROLLOUTS = 2**18, 64
"""The largest size in bytes of a storage for several rollouts, and the largest number of rollouts in it."""


class RolloutStorage:
    """Holds one rollout of T steps, or several that follow one another: [K * T, B, ..], and one more observation.

    Short rollouts share a storage because preparing it takes longer than a step of a small environment. No row is written
    twice, so rollouts stay valid.
    """

    def __init__(self, first: Observation, length: int, *, several: bool, normalized: bool) -> None:
        """The storage begins with the observation `first` [B, ..].

        Args:
            first: the first observation.
            length: T, the steps of a rollout.
            several: whether there is space for several rollouts, if they are small.
            normalized: whether the policy acts on other features, those after normalisation.
        """
        features, mask = cast("Tensor", first.features), first.action_mask
        self.length, self.count = length, len(first.is_first)
        size = length * (features.nbytes + (0 if mask is None else mask.nbytes) + 8 * self.count)
        total = length * (max(1, min(SHARED_ROLLOUTS, SHARED_BYTES // size)) if several else 1)
        self.observation = Observation(
            _beginning_with(features, total + 1),
            _beginning_with(first.is_first, total + 1),
            None if mask is None else _beginning_with(mask, total + 1),
        )
        self.acted_on = self._observations(slice(total))  # [K * T, B, ..], what the policy receives
        if normalized:
            self.acted_on = replace(self.acted_on, features=torch.empty(total, *features.shape, dtype=torch.float32))
        self.reward = torch.empty(total, self.count, dtype=torch.float32)
        self.terminated, self.truncated = torch.zeros(2, total, self.count, dtype=torch.bool).unbind()
        self.valid = torch.ones(total, self.count, dtype=torch.bool)
        self.start = 0
        """The row at which the current rollout begins."""
        self._finals, self._episodes, self._stopped = list[Finals](), list[Episode](), False
        self._constant: object = None
        """Extras of the last rollout that contain no tensors."""

    def has_space(self) -> bool:
        """Whether another rollout can follow. No callback may have ended the last one."""
        return self.start < len(self.reward) and not self._stopped

    def end(self, t: int, step: EnvStep) -> bool:
        """Note the episodes that ended in step t of the rollout; return whether a callback ended the training."""
        if step.final_observation is not None:
            row = self.start + t
            self.terminated[row], self.truncated[row] = step.terminated, step.truncated
            self.observation.is_first[row + 1] = step.observation.is_first
            self._finals.append((t, step.terminated | step.truncated, step.final_observation))
            self._episodes += step.episodes
        self._stopped = step.stops
        return step.stops

    def steps(self, done: int, action: Tensor, extras: Any) -> StepData[Any]:
        """The first `done` steps of the rollout, given the actions and extras of all rows of the storage."""
        rows = slice(self.start, self.start + done)
        if extras is not self._constant and tree.leaves(extras):
            extras = tree.map_tensors(lambda leaf: leaf[rows], extras)
        else:
            self._constant = extras
        flags = self.terminated[rows], self.truncated[rows], self.valid[rows]
        return StepData(self._observations(rows), action[rows], self.reward[rows], *flags, extras)

    def finished(self, steps: StepData[Any], carry: Any) -> Rollout[Any, Any]:
        """Finish the rollout with these steps. The carry did not change in them."""
        self.start += len(steps.reward)
        last = self._copied(self.start)  # a view would hold the memory of all rollouts
        finals, episodes = join_finals(self._finals), tuple(self._episodes)
        self._finals, self._episodes = [], []
        return Rollout(steps, carry, last, carry, finals, episodes, self._stopped)

    # field by field, because traversing records takes as long as a step of a small environment

    def _observations(self, rows: slice) -> Observation:
        seen, mask = self.observation, self.observation.action_mask
        return Observation(seen.features[rows], seen.is_first[rows], None if mask is None else mask[rows])

    def _copied(self, row: int) -> Observation:
        seen, mask = self.observation, self.observation.action_mask
        own = None if mask is None else mask[row].clone()
        return Observation(seen.features[row].clone(), seen.is_first[row].clone(), own)


def _beginning_with(first: Tensor, length: int) -> Tensor:
    """Return a storage [length, ..] of zeros whose first row is `first` [..]."""
    storage = first.new_zeros(length, *first.shape)
    storage[0] = first
    return storage
