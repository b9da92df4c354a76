"""Groups of environments. Each group has its own random numbers for acting, independent of the process that steps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.errors import SettingsError
from rlsdk.interfaces import ActsForRollouts, FillsExtras, Policy, State, VectorEnv
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.records import Act, ActingState, Episode, FinalObservations, Observation, Rollout, StepData
from rlsdk.runtime.seeding import Streams
from rlsdk.tree import map_tensors

NodeT = TypeVar("NodeT")
CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def group_generators(streams: Streams, count: int) -> list[Generator]:
    """The generator of each of `count` groups. The first one is the generator that a single group would have."""
    return [streams["action" if group == 0 else f"action {group}"] for group in range(count)]


def begin_acting(env: VectorEnv, policy: Policy[CarryT, ExtrasT], seed: int | None) -> ActingState[CarryT]:
    """Reset the environments; return the first observations with the initial carry of the policy."""
    return ActingState(env.reset(seed), policy.initial_carry(env.num_envs))


def split_acting(
    observation: Observation, policy: Policy[CarryT, ExtrasT], count: int
) -> tuple[ActingState[CarryT], ...]:
    """Divide the observations [B] into `count` groups of similar size, each with an initial carry."""
    sizes = [len(part) for part in torch.tensor_split(observation.is_first, count)]
    rows = [slice(sum(sizes[:group]), sum(sizes[: group + 1])) for group in range(count)]
    return tuple(
        ActingState(_rows(observation, at), policy.initial_carry(size)) for at, size in zip(rows, sizes, strict=True)
    )


def require_groups(num_envs: int, count: int) -> None:
    """Raises SettingsError if the environments cannot be divided into `count` groups of equal size."""
    if num_envs % count:
        raise SettingsError(f"env_groups = {count} does not divide the {num_envs} environments; choose a divisor")


class GroupedPolicy(Generic[CarryT, ExtrasT]):
    """A policy that acts for several groups of environments, each with its own carry and generator."""

    def __init__(self, policy: Policy[CarryT, ExtrasT], sizes: Sequence[int], generators: Sequence[Generator]) -> None:
        self.policy, self.generators = policy, generators
        ends = [sum(sizes[: group + 1]) for group in range(len(sizes))]
        self.rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._preparing, self._filling = shortcut(policy, ActsForRollouts, "act"), ability(policy, FillsExtras)

    def joined(self, states: Sequence[ActingState[CarryT]]) -> ActingState[tuple[CarryT, ...]]:
        """Join the acting states of all groups into one; its carry is the tuple of the groups' carries."""
        return ActingState(joined([state.observation for state in states]), tuple(state.carry for state in states))

    def split(
        self, rollout: Rollout[tuple[CarryT, ...], ExtrasT]
    ) -> tuple[tuple[ActingState[CarryT], ...], Rollout[CarryT, ExtrasT]]:
        """Return (the acting state of each group after a rollout, the rollout with the groups' carries joined over
        environments)."""
        states = zip(self.rows, rollout.last_carry, strict=True)
        acting = tuple(ActingState(_rows(rollout.last_observation, at), carry) for at, carry in states)
        return acting, Rollout(
            rollout.steps,
            joined(rollout.initial_carry),
            rollout.last_observation,
            joined(rollout.last_carry),
            rollout.final_observations,
            rollout.episodes,
            rollout.stopped,
        )

    def initial_carry(self, batch: int) -> tuple[CarryT, ...]:
        """The initial carry of each group. `batch` is ignored: the sizes of the groups are known."""
        return tuple(self.policy.initial_carry(at.stop - at.start) for at in self.rows)

    def act(
        self, observation: Observation, carry: tuple[CarryT, ...], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[CarryT, ...], ExtrasT]:
        """Act for all groups. `generator` is ignored: each group has its own."""
        return self._act(self.policy.act, observation, carry, deterministic)

    def rollout_act(self) -> Callable[..., Act[tuple[CarryT, ...], ExtrasT]]:
        """See `rlsdk.interfaces.ActsForRollouts`."""
        prepared = self.policy.act if self._preparing is None else self._preparing.rollout_act()

        def act(
            observation: Observation, carry: tuple[CarryT, ...], *, deterministic: bool, generator: Generator
        ) -> Act[tuple[CarryT, ...], ExtrasT]:
            return self._act(prepared, observation, carry, deterministic)

        return act

    def _act(
        self,
        act_on: Callable[..., Act[CarryT, ExtrasT]],
        observation: Observation,
        carry: tuple[CarryT, ...],
        deterministic: bool,
    ) -> Act[tuple[CarryT, ...], ExtrasT]:
        acts = [
            act_on(_rows(observation, at), own, deterministic=deterministic, generator=numbers)
            for at, own, numbers in zip(self.rows, carry, self.generators, strict=True)
        ]
        extras = joined([act.extras for act in acts])
        return Act(joined([act.action for act in acts]), tuple(act.carry for act in acts), extras)

    def estimates(self, steps: StepData[ExtrasT]) -> ExtrasT:
        """See `rlsdk.interfaces.FillsExtras`. If the policy does not implement it, return the extras unchanged."""
        if self._filling is None:
            return steps.extras
        columns = [map_tensors(lambda leaf, at=at: leaf[:, at], steps) for at in self.rows]
        filled: list[ExtrasT] = [self._filling.estimates(part) for part in columns]
        return joined(filled, dim=1)

    def state_dict(self) -> State:
        return self.policy.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.policy.load_state_dict(state)


def joined(parts: Sequence[NodeT], dim: int = 0) -> NodeT:
    """Join the values of several groups along `dim`. Leaves without this dimension are taken from the first group."""
    if len(parts) == 1:
        return parts[0]
    return map_tensors(lambda *leaves: torch.cat(leaves, dim) if leaves[0].dim() > dim else leaves[0], *parts)


def join_rollouts(rollouts: Sequence[Rollout[CarryT, ExtrasT]]) -> Rollout[CarryT, ExtrasT]:
    """Join the rollouts [T, B of the group] of several groups into one [T, B], as if all groups had been stepped together."""
    starts = [sum(r.steps.reward.shape[1] for r in rollouts[:group]) for group in range(len(rollouts))]
    steps = joined([rollout.steps for rollout in rollouts], dim=1)
    return Rollout(
        steps,
        joined([rollout.initial_carry for rollout in rollouts]),
        joined([rollout.last_observation for rollout in rollouts]),
        joined([rollout.last_carry for rollout in rollouts]),
        _join_finals([(r.final_observations, start) for r, start in zip(rollouts, starts, strict=True)]),
        _episodes_in_order(steps.terminated | steps.truncated, rollouts, starts),
        any(rollout.stopped for rollout in rollouts),
    )


def _join_finals(parts: Sequence[tuple[FinalObservations | None, int]]) -> FinalObservations | None:
    """Join the final observations of all groups, ordered by time and then by environment."""
    found = [replace(final, env=final.env + start) for final, start in parts if final is not None]
    if not found:
        return None
    every = joined(found)
    width = int(every.env.max()) + 1
    order = torch.argsort(every.time * width + every.env)
    return map_tensors(lambda leaf: leaf[order], every)


def _episodes_in_order(
    ended: Tensor, rollouts: Sequence[Rollout[CarryT, ExtrasT]], starts: Sequence[int]
) -> tuple[Episode, ...]:
    """The episodes of all groups, ordered by their end (`ended` bool [T, B]) and then by environment."""
    waiting: dict[int, list[Episode]] = {}
    for rollout, start in zip(rollouts, starts, strict=True):
        for episode in rollout.episodes:
            waiting.setdefault(episode.env + start, []).append(replace(episode, env=episode.env + start))
    order = [env for env in ended.nonzero()[:, 1].tolist() if env in waiting]
    return tuple(waiting[env].pop(0) for env in order if waiting[env])


def _rows(observation: Observation, at: slice) -> Observation:
    return map_tensors(lambda leaf: leaf[at], observation)
