"""Collects rollouts: the only module in which a policy acts in an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.interfaces import ActsForRollouts, ActsInPlace, FillsExtras, Policy, StepsInPlace, VectorEnv
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.records import Act, ActingState, Episode, FinalObservations, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
CHUNK = 32
"""The number of steps that are copied together to the storage of a rollout."""
_Finals = tuple[int, Tensor, Observation]
"""(index of the step, the rows that ended with it as bool [B], their final observations)."""


@torch.no_grad()
def collect(
    env: VectorEnv,
    policy: Policy[CarryT, ExtrasT],
    acting: ActingState[CarryT],
    length: int,
    *,
    generator: Generator,
    on_step: Callable[[int], object] | None = None,
) -> Rollout[CarryT, ExtrasT]:
    """Collect `length` steps of every environment, beginning with `acting`, with complete extras; see `act_and_step`.

    The contents of the rollout do not depend on whether the policy prepares acting or fills extras afterwards.
    """
    writing, stepping, filling = acts_in_place(policy), steps_in_place(env), ability(policy, FillsExtras)
    fill = None if filling is None else filling.estimates
    rollout: Rollout[CarryT, ExtrasT] | None = None
    if writing is not None and stepping is not None:
        rollout = collect_in_place(stepping, writing, acting, length, generator=generator, on_step=on_step)
        if rollout is not None and fill is not None:
            rollout = replace(rollout, steps=replace(rollout.steps, extras=fill(rollout.steps)))
    if rollout is None:
        act_on = partial(rollout_act(policy), deterministic=False, generator=generator)
        rollout = act_and_step(env, act_on, acting, length, on_step=on_step, fill=fill)
    return rollout


def rollout_act(policy: Policy[CarryT, ExtrasT]) -> Callable[..., Act[CarryT, ExtrasT]]:
    """Return the function that acts during one rollout; see `rlsdk.interfaces.ActsForRollouts`."""
    preparing = shortcut(policy, ActsForRollouts, "act")
    return policy.act if preparing is None else preparing.rollout_act()


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
    observation, carry, rows = acting.observation, acting.carry, _Rows(length)
    finals, episodes = list[_Finals](), list[Episode]()
    for t in range(length):
        act = act_on(observation, carry)
        step = env.step(act.action)
        if on_step is not None:
            on_step((t + 1) * len(step.reward))
        rows.append(
            StepData(
                observation, act.action, step.reward, step.terminated, step.truncated, step.valid, act.extras, step.info
            )
        )
        if step.final_observation is not None:
            finals.append((t, step.terminated | step.truncated, step.final_observation))
        episodes += step.episodes
        observation, carry = step.observation, act.carry
        if step.stops:
            break
    steps = rows.joined()
    if fill is not None:
        steps = replace(steps, extras=fill(steps))
    return Rollout(steps, acting.carry, observation, carry, _join(finals), tuple(episodes), step.stops)


def acts_in_place(policy: object) -> ActsInPlace | None:
    """Return the policy if it can write actions to the storage of a rollout, and no subclass or object overrides `act`."""
    given = shortcut(policy, ActsInPlace, "act")
    return None if given is None else shortcut(given, ActsInPlace, "rollout_act")


def steps_in_place(env: object) -> StepsInPlace | None:
    """Return the environments if they can write to the storage of a rollout, and no wrapper or subclass overrides `step`."""
    return shortcut(env, StepsInPlace, "step")


def collect_in_place(
    env: StepsInPlace,
    policy: ActsInPlace,
    acting: ActingState[CarryT],
    length: int,
    *,
    generator: Generator,
    on_step: Callable[[int], object] | None = None,
) -> Rollout[CarryT, Any] | None:
    """Do the same as `act_and_step` without records of single steps; None if the policy or the environments cannot now.

    Actions, observations and rewards are written directly to the storage of the rollout.
    """
    now, (count,) = acting.observation, acting.observation.is_first.shape
    if now.action_mask is not None or not isinstance(now.features, Tensor) or not now.features.is_cpu:
        return None
    features = now.features.new_empty(length + 1, *now.features.shape)
    prepared = policy.act_in_place(features[:length], acting.carry, generator)
    if prepared is None:
        return None
    (act, action, extras), reward = prepared, torch.empty(length, count, dtype=torch.float32)
    step = env.step_in_place(features, action, reward)
    if step is None:
        return None
    is_first, terminated, truncated = torch.zeros(3, length + 1, count, dtype=torch.bool).unbind()
    features[0], is_first[0] = now.features, now.is_first
    finals, episodes = list[_Finals](), list[Episode]()
    for t in range(length):
        act(t)
        ended = step(t)
        if on_step is not None:
            on_step((t + 1) * count)
        if ended is not None and ended.final_observation is not None:
            terminated[t], truncated[t], is_first[t + 1] = ended.terminated, ended.truncated, ended.observation.is_first
            finals.append((t, ended.terminated | ended.truncated, ended.final_observation))
            episodes += ended.episodes
    seen, valid = Observation(features[:length], is_first[:length]), torch.ones(length, count, dtype=torch.bool)
    steps = StepData(seen, action, reward, terminated[:length], truncated[:length], valid, extras)
    last = Observation(features[length].clone(), is_first[length].clone())  # without the memory of the rollout
    return Rollout(steps, acting.carry, last, acting.carry, _join(finals), tuple(episodes))


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
            return tree.map_tensors(lambda leaf: leaf.unsqueeze(0), self.pending[0])
        if self.storage is None:
            return tree.stack(self.pending)  # fewer than `CHUNK` steps, none of them in the storage
        if self.pending:
            self._flush()
        return tree.map_tensors(lambda leaf: leaf[: self.written], self.storage)


def _join(finals: list[_Finals]) -> FinalObservations | None:
    """Join the final observations of several steps into one record."""
    if not finals:
        return None
    places, envs = torch.stack([ended for _, ended, _ in finals]).nonzero().unbind(1)
    times = torch.tensor([t for t, _, _ in finals], device=envs.device)[places]
    observation = tree.map_tensors(lambda *leaves: torch.cat(leaves), *(final for _, _, final in finals))
    return FinalObservations(times, envs, observation)
