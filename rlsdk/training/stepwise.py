"""Collects rollouts: step by step as records, or written in place into a storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeVar, cast

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.interfaces import PolicyAbilities, VectorEnv
from rlsdk.interfaces.abilities import shortcut
from rlsdk.interfaces.environment import StepsInPlace
from rlsdk.interfaces.policy import ActInPlace
from rlsdk.networks.normalizer import ObservationNormalizer
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import Act, ActingState, EnvStep, Episode, FinalObservations, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


UNSQUEEZE = methodcaller("unsqueeze", 0)
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
    seen, carry = acting.observation, acting.carry
    rows: list[StepData[ExtrasT]] = []
    storage, written = None, 0
    finals: list[Finals] = []
    episodes: list[Episode] = []
    for t in range(length):
        act = act_on(seen, carry)
        step = env.step(act.action)
        if on_step is not None:
            on_step((t + 1) * len(step.reward))
        rows.append(
            StepData(seen, act.action, step.reward, step.terminated, step.truncated, step.valid, act.extras, step.info)
        )
        if len(rows) == CHUNK:
            # copying each step by itself would take longer than the step of a small environment
            storage, written, rows = _stored(storage, rows, written, length), written + CHUNK, []
        if step.final_observation is not None:
            finals.append((t, step.terminated | step.truncated, step.final_observation))
        episodes += step.episodes
        seen, carry = step.observation, act.carry
        if step.stops:  # a callback ended the training: the step counts, no other follows
            break
    if storage is None:
        # off-policy rollouts have one step as a rule; views of its record save the copy of every leaf
        steps = tree.map_tensors(UNSQUEEZE, rows[0]) if length == 1 else tree.stack(rows)
    else:
        storage, written = _stored(storage, rows, written, length), written + len(rows)
        steps = tree.map_tensors(lambda leaf: leaf[:written], storage)
    if fill is not None:
        steps = replace(steps, extras=fill(steps))
    # the first carry belongs to the rollout: recurrent updates start from it
    return Rollout(
        steps, acting.carry, seen, carry, join_finals(finals) if finals else None, tuple(episodes), step.stops
    )


def _stored(
    storage: StepData[ExtrasT] | None, rows: list[StepData[ExtrasT]], start: int, length: int
) -> StepData[ExtrasT]:
    """Copy steps [B] to the rows of the storage [length, B] from `start` on; return the storage. None: allocate it first."""
    if not rows:
        assert storage is not None
        return storage
    if storage is None:
        storage = tree.map_tensors(lambda leaf: leaf.new_empty((length, *leaf.shape)), rows[0])
    pick = tree.layout(rows[0]).pick
    for target, column in zip(pick(storage), zip(*map(pick, rows), strict=True), strict=True):
        torch.stack(column, out=target[start : start + len(rows)])
    return storage


def join_finals(finals: list[Finals]) -> FinalObservations:
    """Join the final observations of several steps, at least one, into one record."""
    times, ended, last = zip(*finals, strict=True)
    # in order of time and then of environment, as the final observations were gathered
    places, envs = torch.stack(ended).nonzero().unbind(1)
    observation = tree.map_tensors(lambda *leaves: torch.cat(leaves), *last)
    return FinalObservations(torch.tensor(times, device=envs.device)[places], envs, observation)


SHARED_BYTES, SHARED_ROLLOUTS = 2**18, 64
"""The largest size in bytes of a storage for several rollouts, and the largest number of rollouts in it."""


class InPlaceSteps:
    """A policy and environments that write rollouts directly to their storage."""

    def __init__(
        self, act: ActInPlace, env: StepsInPlace, generator: Generator, normalizer: ObservationNormalizer | None = None
    ) -> None:
        """`normalizer`: normalizes observations before the policy acts."""
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
        # kernels write plain arrays: no nested observations, no GPU
        if not isinstance(acting.observation.features, Tensor) or not acting.observation.is_first.is_cpu:
            return None
        storage = self._storage_for(acting.observation, length)
        prepared = self.act(storage.acted_on, acting.carry, self.generator)
        step = prepared and self.env.step_in_place(storage.observation, prepared[1], storage.reward)
        if prepared is None or step is None:
            return None
        act, action, extras = prepared
        normalize, start, count = None, storage.start, storage.count
        if self.normalizer is not None:
            rows = slice(start, start + length)
            normalize = self.normalizer.by_row(storage.observation.features[rows], storage.acted_on.features[rows])
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
        # another rollout follows in this storage if there is space, and if no callback has ended the training
        if storage.start < len(storage.reward) and not rollout.stopped:
            self._storage, self._held = storage, (prepared, step)
        return rollout

    def _storage_for(self, first: Observation, length: int) -> RolloutStorage:
        """Return the storage of a rollout that begins with `first`. It is used again only after a whole rollout."""
        # the storage continues only if the environments were not reset in between
        storage, self._storage, follows = self._storage, None, first is self._last
        if storage is not None and follows and storage.length == length:
            return storage
        self._held = storage = None  # release the memory first
        return RolloutStorage(first, length, several=follows, normalized=self.normalizer is not None)


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
            normalized: whether the policy acts on other features, those after normalization.
        """
        features, mask = cast("Tensor", first.features), first.action_mask
        self.length, self.count = length, len(first.is_first)
        # limited in bytes, because one rollout that somebody holds holds the memory of all
        size = length * (features.nbytes + (0 if mask is None else mask.nbytes) + 8 * self.count)
        total = length * (max(1, min(SHARED_ROLLOUTS, SHARED_BYTES // size)) if several else 1)
        self.observation = Observation(
            _beginning_with(features, total + 1),
            _beginning_with(first.is_first, total + 1),
            None if mask is None else _beginning_with(mask, total + 1),
        )
        seen, mask = self.observation, self.observation.action_mask
        # what the policy receives, [K * T, B, ..]: all but the last observation
        self.acted_on = Observation(seen.features[:-1], seen.is_first[:-1], None if mask is None else mask[:-1])
        if normalized:
            self.acted_on = replace(self.acted_on, features=torch.empty(total, *features.shape, dtype=torch.float32))
        self.reward = torch.empty(total, self.count, dtype=torch.float32)
        # zeros, because only steps that end an episode write their flags
        self.terminated, self.truncated = torch.zeros(2, total, self.count, dtype=torch.bool).unbind()
        # environments that reset at once have no padding rows
        self.valid = torch.ones(total, self.count, dtype=torch.bool)
        self._flags = self.terminated.numpy(), self.truncated.numpy(), self.observation.is_first.numpy()
        self.start = 0
        """The row at which the current rollout begins."""
        self._finals, self._episodes, self._stopped = list[Finals](), list[Episode](), False
        self._constant: object = None
        """Extras of the last rollout that contain no tensors."""

    def end(self, t: int, step: EnvStep) -> bool:
        """Note the episodes that ended in step t of the rollout; return whether a callback ended the training."""
        if step.final_observation is not None:
            row, (terminated, truncated, is_first) = self.start + t, self._flags  # numpy assigns rows faster than torch
            terminated[row], truncated[row] = step.terminated.numpy(), step.truncated.numpy()
            is_first[row + 1] = step.observation.is_first.numpy()
            self._finals.append((t, step.terminated | step.truncated, step.final_observation))
            self._episodes += step.episodes
        self._stopped = step.stops
        return step.stops

    def steps(self, done: int, action: Tensor, extras: Any) -> StepData[Any]:
        """The first `done` steps of the rollout, given the actions and extras of all rows of the storage, [K * T, B, ..]."""
        rows = slice(self.start, self.start + done)
        if extras is not self._constant and tree.leaves(extras):
            extras = tree.map_tensors(lambda leaf: leaf[rows], extras)
        else:
            self._constant = extras
        flags = self.terminated[rows], self.truncated[rows], self.valid[rows]
        # field by field, because traversing records takes as long as a step of a small environment
        seen, mask = self.observation, self.observation.action_mask
        observation = Observation(seen.features[rows], seen.is_first[rows], None if mask is None else mask[rows])
        return StepData(observation, action[rows], self.reward[rows], *flags, extras)

    def finished(self, steps: StepData[Any], carry: Any) -> Rollout[Any, Any]:
        """Finish the rollout with these steps. The carry did not change in them."""
        self.start += len(steps.reward)
        # copies, because views would hold the memory of all rollouts
        seen, row, mask = self.observation, self.start, self.observation.action_mask
        own = None if mask is None else mask[row].clone()
        last = Observation(seen.features[row].clone(), seen.is_first[row].clone(), own)
        finals, episodes = join_finals(self._finals) if self._finals else None, tuple(self._episodes)
        self._finals, self._episodes = [], []
        return Rollout(steps, carry, last, carry, finals, episodes, self._stopped)


def _beginning_with(first: Tensor, length: int) -> Tensor:
    """Return a storage [length, ..] of zeros whose first row is `first` [..]."""
    storage = first.new_zeros(length, *first.shape)
    storage[0] = first
    return storage


def in_place_of(
    policy: object, env: object, generator: Generator, normalizer: RolloutNormalizer | None = None
) -> InPlaceSteps | None:
    """Return the policy and the environments if both can write rollouts directly to their storage.

    None if a subclass, a wrapper or the object itself overrides `act` or `step`, which would not be called.
    """
    given = shortcut(policy, PolicyAbilities, "act_in_place", "act")
    # a subclass that overrides either expects its own method to be called
    given = given and shortcut(given, PolicyAbilities, "act_in_place", "rollout_act")
    act, stepping = None if given is None else given.act_in_place, shortcut(env, StepsInPlace, "step_in_place", "step")
    if act is None or stepping is None:
        return None
    return InPlaceSteps(act, stepping, generator, None if normalizer is None else normalizer.normalizer.observations)
