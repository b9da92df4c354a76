"""Collecting in environments of this process, or in processes it started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import torch
from torch import Generator

from rlsdk.errors import UsageError
from rlsdk.interfaces import BeginsRollouts, EpisodePlayer, Policy, VectorEnv
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, Rollout
from rlsdk.registry.abilities import ability
from rlsdk.spaces import Space
from rlsdk.training.collect import act_and_step, collect, rollout_act
from rlsdk.training.groups import GroupedPolicy, joined
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def begin_acting(env: VectorEnv, policy: Policy[CarryT, Any], seed: int | None) -> ActingState[CarryT]:
    """The start of acting: environments reset, an empty carry."""
    return ActingState(env.reset(seed), policy.initial_carry(env.num_envs))


class LocalCollector:
    """Environments stepped together, in one group or several."""

    def __init__(
        self,
        env: VectorEnv,
        acting: tuple[ActingState[Any], ...] = (),
        generators: Sequence[Generator] = (),
        normalizer: RolloutNormalizer | None = None,
    ) -> None:
        """`acting` and `generators`: one per group; none where only whole episodes are played. `normalizer`: of what is acted
        on and of rollouts; None: nothing is normalised."""
        self.env, self.acting, self.generators, self.normalizer = env, acting, tuple(generators), normalizer
        self._in_round = False
        self._policy: Policy[Any, Any] | None = None
        self._begin: Callable[[Any], Any] | None = None

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        if policy is not self._policy:
            able = ability(policy, BeginsRollouts)
            self._policy, self._begin = policy, None if able is None else able.begin_rollout
        states = self.acting
        if not self._in_round:
            self._in_round = True
            if (begin := self._begin) is not None:
                states = tuple(replace(state, carry=begin(state.carry)) for state in states)
        if len(states) == 1:
            given = self._collect(policy, states[0], length, on_step)
            self.acting = (ActingState(given.last_observation, given.last_carry),)
            rollout = self._learnt(policy, given)
        else:
            rollout = self._collect_groups(policy, states, length, on_step)
        if ends_round:
            self.end_round()
        return rollout

    def _collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        state: ActingState[CarryT],
        length: int,
        on_step: Callable[[int], object] | None,
    ) -> Rollout[CarryT, ExtrasT]:
        """Observations are as the environment gave them; extras may be left out where they are normalised."""
        generator = self.generators[0]
        if self.normalizer is None:
            return collect(self.env, policy, state, length, generator=generator, on_step=on_step)
        act_on = self.normalizer.acting(rollout_act(policy), generator)
        with torch.no_grad():
            return act_and_step(self.env, act_on, state, length, on_step=on_step)

    def _learnt(self, policy: Policy[CarryT, ExtrasT], rollout: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
        """The rollout of `_collect` as algorithms learn from it."""
        if self.normalizer is None:
            return rollout
        return self.normalizer.rollout(rollout, getattr(policy, "estimates", None))

    def _collect_groups(
        self,
        policy: Policy[CarryT, ExtrasT],
        states: tuple[ActingState[Any], ...],
        length: int,
        on_step: Callable[[int], object] | None,
    ) -> Rollout[Any, ExtrasT]:
        grouped = GroupedPolicy(policy, [len(state.observation.is_first) for state in states], self.generators)
        begun = ActingState(joined([state.observation for state in states]), tuple(state.carry for state in states))
        rollout = self._collect(grouped, begun, length, on_step)
        last = rollout.last_observation
        observations = [map_tensors(lambda leaf, at=at: leaf[at], last) for at in grouped.rows]
        self.acting = tuple(map(ActingState, observations, rollout.last_carry))
        carries = joined(begun.carry), joined(rollout.last_carry)
        return replace(self._learnt(grouped, rollout), initial_carry=carries[0], last_carry=carries[1])

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            ended = getattr(self.env, "rollout_ended", None)
            if ended is not None:
                ended()

    @property
    def observation_space(self) -> Space:
        """Of the environments."""
        env: Any = self.env
        space: Space = env.observation_space
        return space

    def play(
        self, work: Callable[[Sequence[Any], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """See `rlsdk.interfaces.EpisodePlayer`."""
        self._in_round = True
        env: Any = self.env
        results: list[ResultT] = env.map(work, items)
        return results


class NoCollector:
    """The collector of a training that collects nothing."""

    num_envs = 0
    acting: tuple[ActingState[Any], ...] = ()

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> NoReturn:
        """Never.

        Raises:
            UsageError: always.
        """
        raise UsageError("the plan has needs_environment = False but collects; set it to True")

    def end_round(self) -> None:
        """There are no rounds."""


def episode_player(collector: object) -> EpisodePlayer:
    """The collector, as one that plays whole episodes.

    Raises:
        UsageError: it plays none.
    """
    if not isinstance(collector, EpisodePlayer):
        raise UsageError(f"{type(collector).__name__} plays no whole episodes, which population methods need")
    return collector
