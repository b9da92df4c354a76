"""Collects rollouts without records of single steps: actions, observations and rewards are written directly to the storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import ActsInPlace, StepsInPlace
from rlsdk.interfaces.abilities import shortcut
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, EnvStep, Episode, Observation, Rollout, StepData
from rlsdk.training.stepwise import Finals, join_finals

CarryT = TypeVar("CarryT")


class InPlace:
    """A policy and environments that write rollouts directly to their storage."""

    def __init__(self, policy: ActsInPlace, env: StepsInPlace, generator: Generator) -> None:
        self.policy, self.env, self.generator = policy, env, generator

    def collect(
        self,
        acting: ActingState[CarryT],
        length: int,
        on_step: Callable[[int], object] | None = None,
        fill: Callable[[StepData[Any]], Any] | None = None,
    ) -> Rollout[CarryT, Any] | None:
        """Do the same as `rlsdk.training.stepwise.act_and_step`; None if the policy or the environments cannot do it now."""
        now = acting.observation
        if now.action_mask is not None or not isinstance(now.features, Tensor) or not now.features.is_cpu:
            return None
        features, reward = (
            now.features.new_empty(length + 1, *now.features.shape),
            torch.empty(length, len(now.is_first)),
        )
        prepared = self.policy.act_in_place(features[:length], acting.carry, self.generator)
        if prepared is None:
            return None
        act, action, extras = prepared
        if (step := self.env.step_in_place(features, action, reward)) is None:
            return None
        features[0] = now.features
        rows = _Rows(now.is_first, length)
        for t in range(length):
            act(t)
            ended = step(t)
            if on_step is not None:
                on_step((t + 1) * len(now.is_first))
            if ended is not None:
                rows.end(t, ended)
        steps = rows.steps(features[:length], action, reward, extras)
        if fill is not None:
            steps = replace(steps, extras=fill(steps))
        last = Observation(features[length].clone(), rows.is_first[length].clone())  # without the memory of the rollout
        finals, episodes = join_finals(rows.finals), tuple(rows.episodes)
        return Rollout(steps, acting.carry, last, acting.carry, finals, episodes)


class _Rows:
    """The flags of T steps, and the episodes that ended in them."""

    def __init__(self, is_first: Tensor, length: int) -> None:
        """`is_first`, bool [B], belongs to the first observation."""
        shape = 3, length + 1, len(is_first)
        self.is_first, self.terminated, self.truncated = torch.zeros(shape, dtype=torch.bool).unbind()
        self.is_first[0] = is_first
        self.finals, self.episodes = list[Finals](), list[Episode]()

    def end(self, t: int, step: EnvStep) -> None:
        """Note the episodes that ended in step t."""
        assert step.final_observation is not None
        self.terminated[t], self.truncated[t] = step.terminated, step.truncated
        self.is_first[t + 1] = step.observation.is_first
        self.finals.append((t, step.terminated | step.truncated, step.final_observation))
        self.episodes += step.episodes

    def steps(self, features: Tensor, action: Tensor, reward: Tensor, extras: object) -> StepData[Any]:
        """The record of the steps [T, B], given their other columns."""
        length, valid = len(reward), torch.ones(reward.shape, dtype=torch.bool)
        seen = Observation(features, self.is_first[:length])
        return StepData(seen, action, reward, self.terminated[:length], self.truncated[:length], valid, extras)


def in_place_of(
    policy: object, env: object, generator: Generator, normalizer: RolloutNormalizer | None = None
) -> InPlace | None:
    """Return the policy and the environments if both can write rollouts directly to their storage.

    None if a subclass, a wrapper or the object itself overrides `act` or `step`, which would not be called.
    """
    acting, stepping = acts_in_place(policy), shortcut(env, StepsInPlace, "step")
    if acting is None or stepping is None:
        return None
    return InPlace(acting if normalizer is None else normalizer.in_place(acting), stepping, generator)


def acts_in_place(policy: object) -> ActsInPlace | None:
    """Return the policy if it can write its actions directly to storage, and nothing overrides `act` or `rollout_act`."""
    given = shortcut(policy, ActsInPlace, "act")
    return None if given is None else shortcut(given, ActsInPlace, "rollout_act")
