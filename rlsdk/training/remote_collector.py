"""The collector of a training whose environments are in several workers, each with a copy of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Generator

from rlsdk.environments import CollectorsVectorEnv
from rlsdk.errors import PluginError
from rlsdk.interfaces import Collector, Policy, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Cursor, Rollout
from rlsdk.training.collecting_copy import Attaching, Counts, Part, Shared, modules_of
from rlsdk.training.collector import EndsRollouts
from rlsdk.training.groups import group_generators, join_rollouts, joined
from rlsdk.training.plan_errors import wrong_length
from rlsdk.training.running_ahead import Round, RunningAhead
from rlsdk.training.trained_agent import DrivenAgent, MakesCopy
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


@runtime_checkable
class LeavesRounds(Protocol):
    """A collector that can run ahead of the learner."""

    def leave(self) -> bool:
        """Discard the rounds that were collected ahead and restore the environments to the state before them.

        Returns False if the environments cannot be restored; they then begin new episodes.
        """
        ...


def left(collector: Collector) -> bool:
    """Discard what a collector collected ahead. Returns False if the environments then have steps that the cursor does
    not count."""
    leaving = ability(collector, LeavesRounds)
    return leaving is None or leaving.leave()


class Counting(Protocol):
    """The members of the running training that the collector uses."""

    cursor: Cursor
    origin: int
    end: int
    schedule_end: int
    exact: bool

    @property
    def driven(self) -> DrivenAgent: ...
    @property
    def copies(self) -> Callable[[], MakesCopy | None]: ...


class RemoteCollector:
    """Collects in several workers in parallel and returns one joined rollout.

    The result equals that of one `LocalCollector` with the same number of groups. Workers return rollouts without
    normalisation. They are joined here, then normalised, and enter the running statistics.
    """

    def __init__(self, env: CollectorsVectorEnv, watched: VectorEnv, run: Counting) -> None:
        """`watched` is the same environment as `env`, as callbacks watch it."""
        self.env, self.run, self._agent = env, run, run.driven
        self.acting = self._agent.acting
        self.generators: list[Generator] = group_generators(self._agent.streams, len(self.acting))
        self.normalizer = self._agent.preprocessing.rollouts(self._agent.parts)
        self._groups = len(self.acting) // env.collectors
        self._in_round, self._env_steps = False, run.cursor.env_steps
        ending = ability(watched, EndsRollouts)
        self._rollout_ended = None if ending is None else ending.rollout_ended
        self._attached_with: object = None
        self._ahead = RunningAhead(env, self._agent) if env.max_lag else None

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
        """See `rlsdk.interfaces.Collector`. `on_step` is called for every step only after the last one was made."""
        if not hasattr(length, "__index__") or length < 1:
            raise wrong_length(length)
        self._attach()
        counts = None if on_step is None else Counts(self._env_steps, self.run.origin, self.run.schedule_end)
        shared, self._in_round = self._shared(policy, length, not self._in_round, counts), True
        parts = self._collected(shared)
        self._env_steps += length * self.num_envs
        rollout: Rollout[CarryT, ExtrasT] = join_rollouts([part.rollout for part in parts if part.rollout is not None])
        if self.normalizer is not None:
            rollout = self.normalizer.rollout(rollout)
        if on_step is not None:
            for step in range(length):
                on_step((step + 1) * self.num_envs)
        if ends_round:
            self.end_round()
        return rollout

    def _collected(self, shared: Shared) -> list[Part]:
        """Return the parts of all workers. With `max_lag`, the next rounds have begun when this returns."""
        if self._ahead is None:
            parts: list[Part] = self.env.collect(shared, self._parts())
            self._take_over(parts)
            return parts
        wanted = Round(shared.length, shared.begins, self._env_steps, shared.counts)
        parts = self._ahead.take(wanted, shared, self._parts())
        self._take_over(parts)
        self._ahead.begin_further(wanted, shared, self._parts(), self.run.end, exact=self.run.exact)
        return parts

    def leave(self) -> bool:
        """See `LeavesRounds`."""
        return self._ahead is None or self._ahead.leave()

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            if self._rollout_ended is not None:
                self._rollout_ended()

    def _attach(self) -> None:
        """Create copies of the agent in the workers, at first and after its settings have changed."""
        if self._attached_with is not self._agent.config:
            self._attached_with, make = self._agent.config, self.run.copies()
            assert make is not None
            self.env.attach(Attaching(make))

    def _shared(self, policy: Policy[Any, Any], length: int, begins: bool, counts: Counts | None) -> Shared:
        if policy is not self._agent.parts.behavior_policy:
            raise PluginError(
                f"the plan collects with a {type(policy).__name__} that is not Parts.behavior_policy, and collectors have"
                " copies of that one only; collect with it, or without collectors"
            )
        normalizer = self._agent.preprocessing.normalizer
        modes = tuple(module.training for module in modules_of(policy))
        statistics = None if normalizer is None else normalizer.observations.state_dict()
        return Shared(policy.state_dict(), statistics, modes, length, begins, torch.get_num_threads(), counts)

    def _parts(self) -> list[Part]:
        """The acting state of each worker's environments."""
        return [self._part(index) for index in range(self.env.collectors)]

    def _part(self, index: int) -> Part:
        groups, rows, frames = self._groups_of(index), self.env.rows[index], self._agent.preprocessing.frames
        memory = frames and map_tensors(lambda leaf: leaf[rows.start : rows.stop], frames.memory)
        return Part(self.acting[groups], tuple(g.get_state() for g in self.generators[groups]), memory)

    def _groups_of(self, index: int) -> slice:
        return slice(index * self._groups, (index + 1) * self._groups)

    def _take_over(self, parts: Sequence[Part]) -> None:
        """Store the acting states after a rollout."""
        self.acting = tuple(state for part in parts for state in part.acting)
        states = [state for part in parts for state in part.generators]
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)
        if (frames := self._agent.preprocessing.frames) is not None:
            frames.memory = joined([part.frames for part in parts])
