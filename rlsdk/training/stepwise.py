"""Collects rollouts step by step: the policy acts on records of observations, the environments return records of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Act, ActingState, Episode, FinalObservations, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
CHUNK = 32
"""The number of steps that are copied together to the storage of a rollout."""
Finals = tuple[int, Tensor, Observation]
"""(index of the step, the rows that ended with it as bool [B], their final observations)."""


def act_and_step(
    env: VectorEnv,
    act_on: Callable[[Observation, CarryT], Act[CarryT, ExtrasT]],
    acting: ActingState[CarryT],
    length: int,
    *,
    on_step: Callable[[int], object] | None = None,
    fill: Callable[[StepData[ExtrasT]], ExtrasT] | None = None,
) -> Rollout[CarryT, ExtrasT]:
    """Make `length` steps of every environment, beginning with `acting`, and return them as a rollout.

    Observations are stored as the environment returned them. The caller disables gradients. There are fewer steps if a
    callback ends the training.

    `fill` computes the extras of all steps [T, B], if the policy leaves them out in single steps.
    """
    rows: _Rows[ExtrasT]
    seen, carry, rows = acting.observation, acting.carry, _Rows(length)
    finals, episodes = list[Finals](), list[Episode]()
    for t in range(length):
        act = act_on(seen, carry)
        step = env.step(act.action)
        if on_step is not None:
            on_step((t + 1) * len(step.reward))
        row = StepData(
            seen, act.action, step.reward, step.terminated, step.truncated, step.valid, act.extras, step.info
        )
        rows.append(row)
        if step.final_observation is not None:
            finals.append((t, step.terminated | step.truncated, step.final_observation))
        episodes += step.episodes
        seen, carry = step.observation, act.carry
        if step.stops:
            break
    steps = rows.joined()
    if fill is not None:
        steps = replace(steps, extras=fill(steps))
    return Rollout(steps, acting.carry, seen, carry, join_finals(finals), tuple(episodes), step.stops)


class _Rows(Generic[ExtrasT]):
    """Collects steps [B] and copies them to storage [T, B], `CHUNK` steps together.

    Copying each step separately would take longer than the step of a small environment.
    """

    def __init__(self, length: int) -> None:
        self.length, self.written = length, 0
        self.pending: list[StepData[ExtrasT]] = []
        self.storage: StepData[ExtrasT] | None = None

    def append(self, row: StepData[ExtrasT]) -> None:
        self.pending.append(row)
        if len(self.pending) == CHUNK:
            self._flush()

    def _flush(self) -> None:
        first, end = self.pending[0], self.written + len(self.pending)
        if self.storage is None:
            self.storage = tree.map_tensors(lambda leaf: leaf.new_empty((self.length, *leaf.shape)), first)
        pick = tree.layout(first).pick
        for target, column in zip(pick(self.storage), zip(*map(pick, self.pending), strict=True), strict=True):
            torch.stack(column, out=target[self.written : end])
        self.written, self.pending = end, []

    def joined(self) -> StepData[ExtrasT]:
        """All steps so far, in order."""
        if self.length == 1:
            return tree.unsqueezed(self.pending[0])
        if self.storage is None:
            return tree.stack(self.pending)  # fewer than `CHUNK` steps, none of them in the storage
        if self.pending:
            self._flush()
        return tree.map_tensors(lambda leaf: leaf[: self.written], self.storage)


def join_finals(finals: list[Finals]) -> FinalObservations | None:
    """Join the final observations of several steps into one record."""
    if not finals:
        return None
    times, ended, last = zip(*finals, strict=True)
    places, envs = torch.stack(ended).nonzero().unbind(1)
    observation = tree.map_tensors(lambda *leaves: torch.cat(leaves), *last)
    return FinalObservations(torch.tensor(times, device=envs.device)[places], envs, observation)
