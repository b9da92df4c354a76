"""Normalisation of rollouts and of batches from a replay buffer. Statistics are updated after each rollout."""

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
    """The observation [.., *shape] with normalised features."""
    return Observation(normalizer.collected(observation.features), observation.is_first, observation.action_mask)


def normalized_batch(normalizer: Normalizer, batch: BatchT) -> BatchT:
    """A batch from a replay buffer with observations and rewards normalised by the current statistics.

    Only `Transitions` and `Sequences` are normalised. For other types of batches, the algorithm must use
    `BuildContext.observation_normalizer` and `BuildContext.reward_normalizer`.
    """
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
    """Normalises the observations and rewards that a collector collects for one agent."""

    def __init__(self, normalizer: Normalizer, *, keeps_raw: bool) -> None:
        """`keeps_raw`: whether rollouts go to a replay buffer, which stores raw observations and rewards."""
        self.normalizer, self.keeps_raw = normalizer, keeps_raw

    def observation(self, observation: Observation) -> Observation:
        """The normalised observation [.., *shape] for the policy."""
        features = self.normalizer.observations.collected(observation.features)
        return Observation(features, observation.is_first, observation.action_mask)

    def acting(
        self, act: Callable[..., Act[CarryT, ExtrasT]], generator: Generator
    ) -> Callable[[Observation, CarryT], Act[CarryT, ExtrasT]]:
        """A function (raw observation, carry) -> the policy's `Act` for the normalised observation.

        `act` has the signature of `Policy.act`.
        """

        def act_on(observation: Observation, carry: CarryT) -> Act[CarryT, ExtrasT]:
            return act(self.observation(observation), carry, deterministic=False, generator=generator)

        return act_on

    @torch.no_grad()
    def rollout(
        self,
        rollout: Rollout[CarryT, ExtrasT],
        estimates: Callable[[StepData[ExtrasT]], ExtrasT] | None = None,
    ) -> Rollout[CarryT, ExtrasT]:
        """The normalised rollout [T, B], or the raw rollout for a replay buffer. Its valid rows update the statistics.

        `estimates` is that of the policy, see `rlsdk.interfaces.FillsExtras`. It gets normalised observations.
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
