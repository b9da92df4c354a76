"""Groups of environments: random numbers for acting are sampled per group, wherever the group is stepped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import Policy
from rlsdk.records import Act, ActingState, Episode, FinalObservations, Observation, Rollout, StepData
from rlsdk.runtime.seeding import Streams
from rlsdk.tree import map_tensors

NodeT = TypeVar("NodeT")


def group_generators(streams: Streams, count: int) -> list[Generator]:
    """The generator of each of `count` groups; that of the first is the one that a single group has."""
    return [streams["action" if group == 0 else f"action {group}"] for group in range(count)]


def split_acting(observation: Observation, policy: Policy[Any, Any], count: int) -> tuple[ActingState[Any], ...]:
    """`count` groups, as even as can be, that begin to act on `observation` [B]."""
    sizes = [len(part) for part in torch.tensor_split(observation.is_first, count)]
    rows = [slice(sum(sizes[:group]), sum(sizes[: group + 1])) for group in range(count)]
    return tuple(
        ActingState(_rows(observation, at), policy.initial_carry(size)) for at, size in zip(rows, sizes, strict=True)
    )


class GroupedPolicy:
    """Acts for several groups, each with a carry and a generator of its own, as if they were stepped apart."""

    def __init__(self, policy: Policy[Any, Any], sizes: Sequence[int], generators: Sequence[Generator]) -> None:
        self.policy, self.generators = policy, generators
        ends = [sum(sizes[: group + 1]) for group in range(len(sizes))]
        self.rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def initial_carry(self, batch: int) -> tuple[Any, ...]:
        return tuple(self.policy.initial_carry(at.stop - at.start) for at in self.rows)

    def act(
        self, observation: Observation, carry: tuple[Any, ...], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[Any, ...], Any]:
        """`generator` is not used: each group has its own."""
        acts = [
            self.policy.act(_rows(observation, at), own, deterministic=deterministic, generator=numbers)
            for at, own, numbers in zip(self.rows, carry, self.generators, strict=True)
        ]
        extras = joined([act.extras for act in acts])
        return Act(joined([act.action for act in acts]), tuple(act.carry for act in acts), extras)

    @property
    def estimates(self) -> Callable[[StepData[Any]], Any] | None:
        """As `rlsdk.interfaces.FillsExtras`, group by group; None where the policy has no such method."""
        fill = getattr(self.policy, "estimates", None)
        if fill is None:
            return None

        def filled(steps: StepData[Any]) -> Any:
            columns = [map_tensors(lambda leaf, at=at: leaf[:, at], steps) for at in self.rows]
            return joined([fill(part) for part in columns], dim=1)

        return filled

    def state_dict(self) -> Any:
        return self.policy.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.policy.load_state_dict(state)


def joined(parts: Sequence[NodeT], dim: int = 0) -> NodeT:
    """Values of several groups as one; leaves without rows (0-d) are those of the first group."""
    if len(parts) == 1:
        return parts[0]
    return map_tensors(lambda *leaves: torch.cat(leaves, dim) if leaves[0].dim() > dim else leaves[0], *parts)


def join_rollouts(rollouts: Sequence[Rollout[Any, Any]]) -> Rollout[Any, Any]:
    """Rollouts [T, B of the group] of several groups as one [T, B], as if the groups had been stepped together."""
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
    """Final observations of all groups, by time and then by environment."""
    found = [replace(final, env=final.env + start) for final, start in parts if final is not None]
    if not found:
        return None
    every = joined(found)
    wide = int(every.env.max()) + 1
    order = torch.argsort(every.time * wide + every.env)
    return map_tensors(lambda leaf: leaf[order], every)


def _episodes_in_order(
    ended: Tensor, rollouts: Sequence[Rollout[Any, Any]], starts: Sequence[int]
) -> tuple[Episode, ...]:
    """The episodes of all groups by the time they `ended` bool [T, B], then by environment."""
    waiting: dict[int, list[Episode]] = {}
    for rollout, start in zip(rollouts, starts, strict=True):
        for episode in rollout.episodes:
            waiting.setdefault(episode.env + start, []).append(replace(episode, env=episode.env + start))
    order = [env for env in ended.nonzero()[:, 1].tolist() if env in waiting]
    return tuple(waiting[env].pop(0) for env in order if waiting[env])


def _rows(observation: Observation, at: slice) -> Observation:
    return map_tensors(lambda leaf: leaf[at], observation)
