"""Collects rollouts without records of single steps: actions, observations and rewards are written directly to the storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.interfaces import ActsInPlace, StepsInPlace
from rlsdk.interfaces.abilities import shortcut
from rlsdk.interfaces.policies import ActInPlace
from rlsdk.networks.observation_normalizer import ObservationNormalizer
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, EnvStep, Episode, Observation, Rollout, StepData
from rlsdk.training.stepwise import Finals, join_finals

CarryT = TypeVar("CarryT")


class InPlace:
    """A policy and environments that write rollouts directly to their storage."""

    def __init__(self, act: ActInPlace, env: StepsInPlace, generator: Generator) -> None:
        self.act, self.env, self.generator = act, env, generator

    def collect(
        self,
        acting: ActingState[CarryT],
        length: int,
        on_step: Callable[[int], object] | None = None,
        fill: Callable[[StepData[Any]], Any] | None = None,
    ) -> Rollout[CarryT, Any] | None:
        """Do the same as `rlsdk.training.stepwise.act_and_step`; None if the policy or the environments cannot do it now."""
        if not isinstance(acting.observation.features, Tensor) or not acting.observation.is_first.is_cpu:
            return None
        rows, count = _Rows(acting.observation, length), len(acting.observation.is_first)
        seen = rows.observations(slice(length))
        if (prepared := self.act(seen, acting.carry, self.generator)) is None:
            return None
        (act, action, extras), reward = prepared, torch.empty(length, count, dtype=torch.float32)
        if (step := self.env.step_in_place(rows.observation, action, reward)) is None:
            return None
        for t in range(length):
            act(t)
            ended = step(t)
            if on_step is not None:
                on_step((t + 1) * count)
            if ended is not None and rows.end(t, ended):
                break
        valid, done = torch.ones(length, count, dtype=torch.bool), t + 1
        steps = StepData(seen, action, reward, rows.terminated, rows.truncated, valid, extras)
        if done < length:
            steps = tree.map_tensors(lambda leaf: leaf[:done], steps)
        if fill is not None:
            steps = replace(steps, extras=fill(steps))
        last = tree.map_tensors(Tensor.clone, rows.observations(done))  # without the memory of the rollout
        finals, episodes = join_finals(rows.finals), tuple(rows.episodes)
        return Rollout(steps, acting.carry, last, acting.carry, finals, episodes, rows.stopped)


class _Rows:
    """The storage of T + 1 observations and of the flags of T steps, and the episodes that ended in them."""

    def __init__(self, first: Observation, length: int) -> None:
        # field by field, because traversing records takes as long as a step of a small environment
        mask = None if first.action_mask is None else _beginning_with(first.action_mask, length + 1)
        features = _beginning_with(cast("Tensor", first.features), length + 1)
        self.observation = Observation(features, _beginning_with(first.is_first, length + 1), mask)
        self.terminated, self.truncated = torch.zeros(2, length, len(first.is_first), dtype=torch.bool).unbind()
        self.finals, self.episodes, self.stopped = list[Finals](), list[Episode](), False

    def observations(self, rows: slice | int) -> Observation:
        """Views of the storage."""
        seen, mask = self.observation, self.observation.action_mask
        return Observation(
            cast("Tensor", seen.features)[rows], seen.is_first[rows], None if mask is None else mask[rows]
        )

    def end(self, t: int, step: EnvStep) -> bool:
        """Note the episodes that ended in step t; return whether a callback ended the training."""
        if step.final_observation is not None:
            self.terminated[t], self.truncated[t] = step.terminated, step.truncated
            self.observation.is_first[t + 1] = step.observation.is_first
            self.finals.append((t, step.terminated | step.truncated, step.final_observation))
            self.episodes += step.episodes
        self.stopped = step.stops
        return step.stops


def _beginning_with(first: Tensor, length: int) -> Tensor:
    """Return a storage [length, ..] of zeros whose first row is `first` [..]."""
    storage = first.new_zeros(length, *first.shape)
    storage[0] = first
    return storage


def in_place_of(
    policy: object, env: object, generator: Generator, normalizer: RolloutNormalizer | None = None
) -> InPlace | None:
    """Return the policy and the environments if both can write rollouts directly to their storage.

    None if a subclass, a wrapper or the object itself overrides `act` or `step`, which would not be called.
    """
    act, stepping = act_in_place(policy), shortcut(env, StepsInPlace, "step")
    if act is None or stepping is None:
        return None
    if normalizer is not None:
        act = partial(_normalize_and_act, act, normalizer.normalizer.observations)
    return InPlace(act, stepping, generator)


def act_in_place(policy: object) -> ActInPlace | None:
    """Return the method of `ActsInPlace` if the policy has it, and nothing overrides `act` or `rollout_act`."""
    given = shortcut(policy, ActsInPlace, "act")
    given = None if given is None else shortcut(given, ActsInPlace, "rollout_act")
    return None if given is None else given.act_in_place


def _normalize_and_act(
    prepare: ActInPlace,
    normalizer: ObservationNormalizer,
    observation: Observation,
    carry: Any,
    generator: Generator,
) -> tuple[Callable[[int], object], Tensor, Any] | None:
    """Prepare acting on raw observations [T, B, ..]."""
    seen = torch.empty_like(observation.features, dtype=torch.float32)
    if (prepared := prepare(replace(observation, features=seen), carry, generator)) is None:
        return None
    act, action, extras = prepared
    normalize = normalizer.by_row(observation.features, seen)

    def normalize_and_act(t: int) -> None:
        normalize(t)
        act(t)

    return normalize_and_act, action, extras
