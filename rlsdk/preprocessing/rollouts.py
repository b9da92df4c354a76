"""Normalising rollouts and samples. Statistics are fixed during a rollout and updated after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Generator

from rlsdk.networks.observation_normalizer import ObservationNormalizer
from rlsdk.preprocessing.normalizer import Normalizer
from rlsdk.records import Act, Observation, Rollout, Sequences, StepData, Transitions
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
BatchT = TypeVar("BatchT")


def normalized(normalizer: ObservationNormalizer, observation: Observation) -> Observation:
    """The observation [.., *shape] as networks see it."""
    return Observation(normalizer(observation.features), observation.is_first, observation.action_mask)


def normalized_batch(normalizer: Normalizer, batch: BatchT) -> BatchT:
    """`Transitions` or `Sequences` that a memory sampled, as the algorithm learns from them, with the current statistics. For
    batches of other types it normalises what it needs: `BuildContext.observation_normalizer`, `reward_normalizer`."""
    observations, rewards = normalizer.observations, normalizer.rewards
    if isinstance(batch, Transitions):
        return replace(
            batch,
            observation=normalized(observations, batch.observation),
            reward=rewards.normalize(batch.reward),
            next_observation=normalized(observations, batch.next_observation),
        )
    if isinstance(batch, Sequences):
        steps, seen = batch.steps, normalized(observations, batch.steps.observation)
        return replace(
            batch,
            steps=replace(steps, observation=seen, reward=rewards.normalize(steps.reward)),
            next_observation=normalized(observations, batch.next_observation),
        )
    return batch


class RolloutNormalizer:
    """What a collector does to the observations and rewards of one agent."""

    def __init__(self, normalizer: Normalizer, *, keeps_raw: bool) -> None:
        """`keeps_raw`: whether rollouts go to a memory, which holds them as the environment gave them."""
        self.normalizer, self.keeps_raw = normalizer, keeps_raw

    def observation(self, observation: Observation) -> Observation:
        """A collected observation [.., *shape] as the policy gets it."""
        features = self.normalizer.observations.collected(observation.features)
        return Observation(features, observation.is_first, observation.action_mask)

    def acting(
        self, act: Callable[..., Act[CarryT, ExtrasT]], generator: Generator
    ) -> Callable[[Observation, CarryT], Act[CarryT, ExtrasT]]:
        """A function (observation as the environment gives it, carry) -> what the policy does; `act`: as the policy's."""

        def act_on(observation: Observation, carry: CarryT) -> Act[CarryT, ExtrasT]:
            return act(self.observation(observation), carry, deterministic=False, generator=generator)

        return act_on

    @torch.no_grad()
    def rollout(
        self,
        rollout: Rollout[CarryT, ExtrasT],
        estimates: Callable[[StepData[ExtrasT]], ExtrasT] | None = None,
    ) -> Rollout[CarryT, ExtrasT]:
        """The rollout [T, B] normalised, or raw for a memory; afterwards its valid rows enter the statistics.

        `estimates`: the policy's, see `rlsdk.interfaces.FillsExtras`; it gets the observations that were acted on.
        """
        acted = rollout if self.keeps_raw and estimates is None else self._normalized(rollout)
        given = rollout if self.keeps_raw else acted
        if estimates is not None:
            given = replace(given, steps=replace(given.steps, extras=estimates(acted.steps)))
        self._update(rollout.steps)
        rewards = self.normalizer.rewards
        return rewards.update(given) if self.keeps_raw else rewards.update_and_normalize(given)

    def _normalized(self, rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        finals = rollout.final_observations
        return replace(
            rollout,
            steps=replace(rollout.steps, observation=self.observation(rollout.steps.observation)),
            last_observation=self.observation(rollout.last_observation),
            final_observations=finals and replace(finals, observation=self.observation(finals.observation)),
        )

    def _update(self, steps: StepData[ExtrasT]) -> None:
        features = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation.features)
        valid = steps.valid
        self.normalizer.observations.update(features, None if bool(valid.all()) else valid.flatten())
