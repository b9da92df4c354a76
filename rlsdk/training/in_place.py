"""Collects rollouts without records of single steps: actions, observations and rewards are written directly to the storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Generator, Tensor

from rlsdk.interfaces import ActsInPlace, StepsInPlace
from rlsdk.interfaces.abilities import shortcut
from rlsdk.interfaces.policies import ActInPlace
from rlsdk.networks.observation_normalizer import ObservationNormalizer
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, Observation, Rollout, StepData
from rlsdk.training.rollout_storage import RolloutStorage

CarryT = TypeVar("CarryT")


class InPlace:
    """A policy and environments that write rollouts directly to their storage."""

    def __init__(
        self, act: ActInPlace, env: StepsInPlace, generator: Generator, normalizer: ObservationNormalizer | None = None
    ) -> None:
        """`normalizer`: normalises observations before the policy acts."""
        self.act, self.env, self.generator, self.normalizer = act, env, generator, normalizer
        self._last: Observation | None = None
        """The observation after the last rollout."""
        self._storage: RolloutStorage | None = None
        """The storage of the last rollout, if the next one has space in it."""
        self._held: object = None
        """What the policy and the environments prepared for this storage. They find it again while it is held."""

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
        storage = self._storage_for(acting.observation, length)
        if (prepared := self.act(storage.acted_on, acting.carry, self.generator)) is None:
            return None
        act, action, extras = prepared
        if (step := self.env.step_in_place(storage.observation, action, storage.reward)) is None:
            return None
        normalize, start, count = self._normalizing(storage), storage.start, storage.count
        for t in range(length):
            if normalize is not None:
                normalize(t)
            act(start + t)
            ended = step(start + t)
            if on_step is not None:
                on_step((t + 1) * count)
            if ended is not None and storage.end(t, ended):
                break
        steps = storage.steps(t + 1, action, extras)
        if fill is not None:
            steps = replace(steps, extras=fill(steps))
        rollout = storage.finished(steps, acting.carry)
        self._last = rollout.last_observation
        if storage.has_space():
            self._storage, self._held = storage, (prepared, step)
        return rollout

    def _storage_for(self, first: Observation, length: int) -> RolloutStorage:
        """Return the storage of a rollout that begins with `first`. It is used again only after a whole rollout."""
        storage, self._storage, follows = self._storage, None, first is self._last
        if storage is not None and follows and storage.length == length:
            return storage
        self._held = storage = None  # release the memory first
        return RolloutStorage(first, length, several=follows, normalized=self.normalizer is not None)

    def _normalizing(self, storage: RolloutStorage) -> Callable[[int], object] | None:
        """Return a function that normalises the observations of step t of the rollout."""
        if self.normalizer is None:
            return None
        rows = slice(storage.start, storage.start + storage.length)
        return self.normalizer.by_row(storage.observation.features[rows], storage.acted_on.features[rows])


def in_place_of(
    policy: object, env: object, generator: Generator, normalizer: RolloutNormalizer | None = None
) -> InPlace | None:
    """Return the policy and the environments if both can write rollouts directly to their storage.

    None if a subclass, a wrapper or the object itself overrides `act` or `step`, which would not be called.
    """
    act, stepping = act_in_place(policy), shortcut(env, StepsInPlace, "step")
    if act is None or stepping is None:
        return None
    return InPlace(act, stepping, generator, None if normalizer is None else normalizer.normalizer.observations)


def act_in_place(policy: object) -> ActInPlace | None:
    """Return the method of `ActsInPlace` if the policy has it, and nothing overrides `act` or `rollout_act`."""
    given = shortcut(policy, ActsInPlace, "act")
    given = None if given is None else shortcut(given, ActsInPlace, "rollout_act")
    return None if given is None else given.act_in_place
