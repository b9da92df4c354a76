"""Collecting in several collectors, each with its share of the environments and a copy of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.environments import CollectorsVectorEnv
from rlsdk.errors import PluginError
from rlsdk.interfaces import Policy, State, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, Features, Observation, Rollout
from rlsdk.training.collector import EndsRollouts, LocalCollector
from rlsdk.training.groups import group_generators, join_rollouts, joined, split_acting
from rlsdk.training.plan_errors import wrong_length
from rlsdk.training.trained_agent import DrivenAgent, MakesCopy
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """What all collectors need to know to collect one part of a round."""

    policy: State
    normalizer: State | None
    """Of observations."""
    training: tuple[bool, ...]
    """Of each module of the policy: whether it is in its mode for training."""
    length: int
    begins: bool
    """Whether a round begins."""
    threads: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One collector's part: where acting stands before it, or, with a rollout, after it."""

    acting: tuple[ActingState[Any], ...]
    generators: tuple[Tensor, ...]
    """The state of the generator of each group."""
    frames: Features
    """The last frames of its environments, where they are stacked."""
    rollout: Rollout[Any, Any] | None = None
    """As the environments gave it."""


class CollectingCopy:
    """In a collector: collects in its environments with a copy of the policy."""

    def __init__(self, env: VectorEnv, make: MakesCopy) -> None:
        self.agent = agent = make(env)
        self.policy, self.frames = agent.parts.behavior_policy, agent.preprocessing.frames
        self.env = agent.preprocessing.environment(env)
        self.normalizer = agent.preprocessing.normalizer
        if self.normalizer is not None:
            self.normalizer.training = False
        self._collector: LocalCollector | None = None

    def __call__(self, shared: Shared, own: Part, fresh: Observation | None) -> Part:
        """See `rlsdk.environments.vector.collector_worker.Attached`."""
        torch.set_num_threads(shared.threads)
        self._take_over(shared, own)
        acting = own.acting if fresh is None else self._restarted(own.acting, fresh)
        generators = group_generators(self.agent.streams, len(acting))
        for generator, state in zip(generators, own.generators, strict=True):
            generator.set_state(state)
        collector = self._collector
        if collector is None:
            raw = None if self.normalizer is None else RolloutNormalizer(self.normalizer, keeps_raw=True)
            self._collector = collector = LocalCollector(self.env, acting, generators, raw)
        collector.acting = acting
        if shared.begins:
            collector.end_round()
        rollout = collector.collect(self.policy, shared.length, ends_round=False)
        states = tuple(generator.get_state() for generator in generators)
        return Part(collector.acting, states, self.frames and self.frames.memory, rollout)

    def _take_over(self, shared: Shared, own: Part) -> None:
        self.policy.load_state_dict(shared.policy)
        for module, mode in zip(_modules(self.policy), shared.training, strict=True):
            module.training = mode
        if self.normalizer is not None:
            self.normalizer.observations.load_state_dict(shared.normalizer or {})
        if self.frames is not None:
            self.frames.memory = own.frames

    def _restarted(self, acting: Sequence[ActingState[Any]], fresh: Observation) -> tuple[ActingState[Any], ...]:
        """The groups at the start of new episodes, whose first observations `fresh` [B] are; what a policy remembers does not
        count where an episode is first."""
        if self.frames is not None:
            features, self.frames.memory = self.frames.push(self.frames.memory, fresh.features, fresh.is_first)
            fresh = Observation(features, fresh.is_first, fresh.action_mask)
        begun = split_acting(fresh, self.policy, len(acting))
        return tuple(ActingState(new.observation, old.carry) for new, old in zip(begun, acting, strict=True))


class RemoteCollector:
    """The collector of a plan, whose environments are in several others. What it returns is what one collector would with as
    many groups: rollouts are joined as they come from the environments, then normalised, and enter the statistics here."""

    def __init__(self, env: CollectorsVectorEnv, watched: VectorEnv, agent: DrivenAgent, make: MakesCopy) -> None:
        """`watched`: the same environments, as callbacks watch them."""
        self.env, self.acting, self._agent = env, agent.acting, agent
        self.generators: list[Generator] = group_generators(agent.streams, len(agent.acting))
        self.normalizer = agent.preprocessing.rollouts(agent.parts)
        self._groups = len(agent.acting) // env.collectors
        self._in_round = False
        ending = ability(watched, EndsRollouts)
        self._rollout_ended = None if ending is None else ending.rollout_ended
        env.attach(_Attaching(make))

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
        """See `rlsdk.interfaces.Collector`; `on_step` is called after the last step, once for each."""
        if not hasattr(length, "__index__") or length < 1:
            raise wrong_length(length)
        shared, self._in_round = self._shared(policy, length, not self._in_round), True
        parts: list[Part] = self.env.collect(shared, [self._part(i) for i in range(self.env.collectors)])
        self._take_over(parts)
        rollout: Rollout[CarryT, ExtrasT] = join_rollouts([part.rollout for part in parts if part.rollout is not None])
        if self.normalizer is not None:
            rollout = self.normalizer.rollout(rollout)
        if on_step is not None:
            for step in range(length):
                on_step((step + 1) * self.num_envs)
        if ends_round:
            self.end_round()
        return rollout

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            if self._rollout_ended is not None:
                self._rollout_ended()

    def _shared(self, policy: Policy[Any, Any], length: int, begins: bool) -> Shared:
        if policy is not self._agent.parts.behavior_policy:
            raise PluginError(
                f"the plan collects with a {type(policy).__name__} that is not Parts.behavior_policy, and collectors have"
                " copies of that one only; collect with it, or without collectors"
            )
        normalizer = self._agent.preprocessing.normalizer
        modes = tuple(module.training for module in _modules(policy))
        statistics = None if normalizer is None else normalizer.observations.state_dict()
        return Shared(policy.state_dict(), statistics, modes, length, begins, torch.get_num_threads())

    def _part(self, index: int) -> Part:
        """Where acting stands in the collector of that number."""
        groups, rows, frames = self._groups_of(index), self.env.rows[index], self._agent.preprocessing.frames
        memory = frames and map_tensors(lambda leaf: leaf[rows.start : rows.stop], frames.memory)
        return Part(self.acting[groups], tuple(g.get_state() for g in self.generators[groups]), memory)

    def _groups_of(self, index: int) -> slice:
        return slice(index * self._groups, (index + 1) * self._groups)

    def _take_over(self, parts: Sequence[Part]) -> None:
        """Where acting stands after a rollout."""
        self.acting = tuple(state for part in parts for state in part.acting)
        states = [state for part in parts for state in part.generators]
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)
        if (frames := self._agent.preprocessing.frames) is not None:
            frames.memory = joined([part.frames for part in parts])


class _Attaching:
    """Makes the `CollectingCopy` of a collector."""

    def __init__(self, make: MakesCopy) -> None:
        self.make = make

    def __call__(self, env: VectorEnv) -> CollectingCopy:
        return CollectingCopy(env, self.make)


def _modules(policy: object) -> list[nn.Module]:
    return list(policy.modules()) if isinstance(policy, nn.Module) else []
