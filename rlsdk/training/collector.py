"""The collector for environments of this process, or of processes that it started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Generator

from rlsdk.errors import UsageError
from rlsdk.interfaces import (
    ActsForRollouts,
    BeginsRollouts,
    FillsExtras,
    PlaysEpisodes,
    Policy,
    VectorEnv,
)
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import Act, ActingState, Observation, Rollout, StepData
from rlsdk.spaces import Space
from rlsdk.training.groups import GroupedPolicy
from rlsdk.training.in_place import in_place_of
from rlsdk.training.plan_errors import wrong_act, wrong_length
from rlsdk.training.stepwise import act_and_step

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class _Actor(Generic[CarryT, ExtrasT]):
    """The policy with everything a collector needs to act with it. Its optional abilities are looked up once, not every
    round."""

    def __init__(
        self,
        policy: Policy[CarryT, ExtrasT],
        states: tuple[ActingState[CarryT], ...],
        generators: tuple[Generator, ...],
        normalizer: RolloutNormalizer | None,
        env: VectorEnv,
    ) -> None:
        """`states` and `generators` have one entry per group."""
        self.policy, self._generator, self._normalizer = policy, generators[0], normalizer
        self.grouped: GroupedPolicy[CarryT, ExtrasT] | None = None
        """The policy for several groups; None if there is a single group."""
        acting: Policy[Any, ExtrasT] = policy
        if len(states) > 1:
            acting = self.grouped = GroupedPolicy(policy, [len(s.observation.is_first) for s in states], generators)
        beginning: BeginsRollouts[CarryT] | None = ability(policy, BeginsRollouts)
        self.begin = None if beginning is None else beginning.begin_rollout
        filling: FillsExtras | None = None if ability(policy, FillsExtras) is None else ability(acting, FillsExtras)
        self.estimates: Callable[[StepData[ExtrasT]], ExtrasT] | None = None if filling is None else filling.estimates
        self.fill = self.estimates if normalizer is None else None  # otherwise the normaliser fills the extras
        self.in_place = in_place_of(acting, env, self._generator, normalizer)
        self._preparing = shortcut(acting, ActsForRollouts, "act")
        self._act: Callable[[Observation, Any], Act[Any, ExtrasT]] = partial(self._first_act, self._bound(acting.act))

    def act_on(self) -> Callable[[Observation, Any], Act[Any, ExtrasT]]:
        """Return the function that acts during one rollout: (observation without normalisation, carry) -> act."""
        return self._act if self._preparing is None else self._bound(self._preparing.rollout_act())

    def _first_act(
        self, act_on: Callable[[Observation, Any], Act[Any, ExtrasT]], observation: Observation, carry: Any
    ) -> Act[Any, ExtrasT]:
        """Act for the first time and check the result.

        Raises:
            PluginError: the policy returned no `Act`, or not one action per environment.
        """
        act = act_on(observation, carry)
        if (error := wrong_act(act, self.policy, len(observation.is_first))) is not None:
            raise error
        self._act = act_on
        return act

    def _bound(self, act: Callable[..., Act[Any, ExtrasT]]) -> Callable[[Observation, Any], Act[Any, ExtrasT]]:
        if self._normalizer is None:
            return partial(act, deterministic=False, generator=self._generator)
        return self._normalizer.acting(act, self._generator)


class EndsRollouts(Protocol):
    """Environments that are notified when collecting ends; those of a training whose callbacks watch rollouts."""

    def rollout_ended(self) -> object: ...


class LocalCollector:
    """Collects in environments that are all stepped together, in one group or several."""

    def __init__(
        self,
        env: VectorEnv,
        acting: tuple[ActingState[Any], ...] = (),
        generators: Sequence[Generator] = (),
        normalizer: RolloutNormalizer | None = None,
        space: Space | None = None,
    ) -> None:
        """Collect in `env`.

        Args:
            env: the environments.
            acting: the acting state of each group; empty if only whole episodes are played.
            generators: the generator of each group.
            normalizer: normalises observations before the policy acts, and rollouts; None: nothing is normalised.
            space: the observation space of the agent, whose Dict keys may have another order than those of `env`; None: that
                of `env`.
        """
        self.observation_space = env.observation_space if space is None else space
        self.env, self.acting, self.generators, self.normalizer = env, acting, tuple(generators), normalizer
        self._in_round = False
        ending = ability(env, EndsRollouts)
        self._rollout_ended = None if ending is None else ending.rollout_ended
        self._actor: _Actor[Any, Any] | None = None

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
        actor, states, normalizer = self._actor, self.acting, self.normalizer
        if actor is None or actor.policy is not policy:
            self._actor = actor = _Actor(policy, states, self.generators, normalizer, self.env)
        if not self._in_round:
            self._in_round = True
            if (begin := actor.begin) is not None:
                states = tuple(replace(state, carry=begin(state.carry)) for state in states)
        if not hasattr(length, "__index__") or length < 1:
            raise wrong_length(length)
        grouped = actor.grouped
        state = states[0] if grouped is None else grouped.joined(states)
        with torch.no_grad():
            # for one step, preparing would take longer than its records
            in_place = actor.in_place if length > 1 else None
            rollout = in_place and in_place.collect(state, length, on_step, actor.fill)
            rollout = rollout or act_and_step(self.env, actor.act_on(), state, length, on_step=on_step, fill=actor.fill)
        if grouped is None:
            self.acting = (ActingState(rollout.last_observation, rollout.last_carry),)
        else:
            self.acting, rollout = grouped.split(rollout)
        if normalizer is not None:
            rollout = normalizer.rollout(rollout, actor.estimates)
        if ends_round:
            self.end_round()
        return rollout

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            if self._rollout_ended is not None:
                self._rollout_ended()

    def play(
        self, work: Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """See `rlsdk.interfaces.EpisodePlayer`.

        Raises:
            UsageError: the environments cannot play whole episodes.
        """
        self._in_round = True
        player = ability(self.env, PlaysEpisodes)
        if player is None:
            raise UsageError(f"{type(self.env).__name__} plays no whole episodes, which population methods need")
        return player.map(work, items)
