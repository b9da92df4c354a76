"""The collector of a training whose environments are in several workers, each with a copy of the policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.errors import EnvironmentFault, PluginError
from rlsdk.interfaces import AlgorithmAbilities, Policy, State, Training, VectorEnv, ability
from rlsdk.records import ActingState, Episode, Features, FinalObservations, Observation, Rollout
from rlsdk.runtime import limited_threads
from rlsdk.training import DrivenAgent, LocalCollector, group_generators, split_acting
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.callbacks import Run
    from rlsdk_parallel.collecting_worker import Packed
    from rlsdk_parallel.environments import CollectorsVectorEnv

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
NodeT = TypeVar("NodeT")


class RemoteCollector:
    """Collects in several workers in parallel and returns one joined rollout.

    The result equals that of one `LocalCollector` with the same number of groups. Workers return rollouts without
    normalization. They are joined here, then normalized, and enter the running statistics.
    """

    def __init__(self, env: CollectorsVectorEnv, run: Run) -> None:
        """Raises UsageError when layers were replaced, so that collectors cannot have copies of the policy."""
        self.env, self.run, self._agent, self.num_envs = env, run, run.driven, env.num_envs
        self.acting = self._agent.acting
        self.generators: list[Generator] = group_generators(self._agent.streams, len(self.acting))
        self.normalizer = self._agent.preprocessing.rollouts(self._agent.parts)
        self._groups = len(self.acting) // env.collectors
        self._in_round, self._env_steps = False, run.cursor.env_steps
        self._ahead = RunningAhead(env, self._agent) if env.max_lag else None
        self._attached_with: object = None
        # now, because an agent that cannot be copied is an error before anything is collected
        self._attach()

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """See `rlsdk.interfaces.Collector`. `on_step` is called for every step only after the last one was made."""
        self._attach()
        schedule = None if on_step is None else (self.run.origin, self.run.schedule_end)
        wanted, self._in_round = Round(length, not self._in_round, self._env_steps, schedule), True
        parts = self._collected(self._shared(policy, wanted))
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
        ahead, own = self._ahead, self._parts()
        parts: list[Part] = self.env.collect(shared, own) if ahead is None else ahead.take(shared, own)
        self._take_over(parts)
        # after the acting states were taken over, from which the next rounds continue
        if ahead is not None:
            ahead.begin_further(shared, self._parts(), self.run.end, exact=self.run.exact)
        return parts

    def leave(self) -> bool:
        """Discard the rounds that were collected ahead and restore the environments to the state before them.

        Returns False if the environments cannot be restored; they then begin new episodes.
        """
        return self._ahead is None or self._ahead.leave()

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            self.run.notify("on_rollout_end")

    def _attach(self) -> None:
        """Create copies of the agent in the workers, at first and after its settings have changed."""
        if self._attached_with is not self._agent.config:
            self._attached_with = self._agent.config
            self.env.attach(partial(CollectingCopy, make=self.run.copies()))

    def _shared(self, policy: Policy[Any, Any], wanted: Round) -> Shared:
        if policy is not self._agent.parts.behavior_policy:
            raise PluginError(
                f"the training loop collects with a {type(policy).__name__} that is not Parts.behavior_policy, and collectors"
                " have copies of that one only; collect with it, or without collectors"
            )
        normalizer = self._agent.preprocessing.normalizer
        modes = tuple(module.training for module in modules_of(policy))
        statistics = None if normalizer is None else normalizer.observations.state_dict()
        return Shared(policy.state_dict(), statistics, modes, torch.get_num_threads(), wanted)

    def _parts(self) -> list[Part]:
        """The acting state of each worker's environments."""
        return [self._part(index) for index in range(self.env.collectors)]

    def _part(self, index: int) -> Part:
        groups, rows, frames = self._groups_of(index), self.env.rows[index], self._agent.preprocessing.frames
        last = frames and map_tensors(lambda leaf: leaf[rows.start : rows.stop], frames.frames)
        return Part(self.acting[groups], tuple(g.get_state() for g in self.generators[groups]), last)

    def _groups_of(self, index: int) -> slice:
        return slice(index * self._groups, (index + 1) * self._groups)

    def _take_over(self, parts: Sequence[Part]) -> None:
        """Store the acting states after a rollout."""
        self.acting = tuple(state for part in parts for state in part.acting)
        states = [state for part in parts for state in part.generators]
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)
        if (frames := self._agent.preprocessing.frames) is not None:
            frames.frames = map_tensors(lambda *rows: torch.cat(rows), *(part.frames for part in parts))


@dataclass(frozen=True, slots=True)
class Round:
    """The number and kind of the steps of one round, or of a part of it."""

    length: int
    begins: bool
    """Whether a round begins."""
    env_steps: int
    """Steps of all environments before it."""
    schedule: tuple[int, int] | None
    """The counts of steps at which progress is 0 and 1, for algorithms that use the number of steps; None: none counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The data that all collectors need to collect one part of a round."""

    policy: State
    normalizer: State | None
    """The state of the statistics of observations; None without normalization."""
    training: tuple[bool, ...]
    """The `training` flag of each module of the policy."""
    threads: int
    round: Round


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The data of one collector: its acting state before the part, or, with a rollout, after it."""

    acting: tuple[ActingState[Any], ...]
    generators: tuple[Tensor, ...]
    """The state of each group's generator."""
    frames: Features
    """The last frames of the collector's environments, if frames are stacked."""
    rollout: Rollout[Any, Any] | None = None
    """The rollout as the environments returned it, without normalization."""


class CollectingCopy:
    """Collects in the environments of a collector process with a copy of the policy."""

    def __init__(self, env: VectorEnv, make: Callable[[VectorEnv], DrivenAgent]) -> None:
        self.agent = agent = make(env)
        self.policy, self.frames = agent.parts.behavior_policy, agent.preprocessing.frames
        self.env = agent.preprocessing.environment(env)
        self.normalizer = agent.preprocessing.normalizer
        if self.normalizer is not None:
            self.normalizer.training = False
        self._collector: LocalCollector | None = None

    def __call__(self, shared: Shared, own: Part, fresh: Observation | None) -> Part:
        """See `rlsdk_parallel.collecting_worker.Attached`."""
        with limited_threads(shared.threads):
            return self._collect(shared, own, fresh)

    def _collect(self, shared: Shared, own: Part, fresh: Observation | None) -> Part:
        self._take_over(shared, own)
        acting = own.acting if fresh is None else self._restarted(own.acting, fresh)
        generators = group_generators(self.agent.streams, len(acting))
        for generator, state in zip(generators, own.generators, strict=True):
            generator.set_state(state)
        collector = self._collector
        if collector is None:
            raw = self.agent.preprocessing.rollouts(self.agent.parts, keeps_raw=True)
            self._collector = collector = LocalCollector(self.env, acting, generators, raw)
        collector.acting = acting
        if shared.round.begins:
            collector.end_round()
        on_step = self._counting(shared.round, collector)
        rollout = collector.collect(self.policy, shared.round.length, on_step=on_step, ends_round=False)
        states = tuple(generator.get_state() for generator in generators)
        return Part(collector.acting, states, self.frames and self.frames.frames, rollout)

    def _counting(self, wanted: Round, collector: LocalCollector) -> Callable[[int], object] | None:
        """Return the `on_step` function that passes the steps of all environments to the copy of the algorithm.

        Exploration may depend on this number.
        """
        scheduled = ability(self.agent.parts.algorithm, AlgorithmAbilities, "collected")
        if scheduled is None or wanted.schedule is None:
            return None
        agent, total = self.agent, self.agent.context.num_envs
        own = self.env.num_envs
        training = Training(collector, agent.parts, agent.streams, *wanted.schedule, agent.context.device)

        def on_step(done: int) -> None:
            steps = wanted.env_steps + done // own * total
            scheduled.collected(steps, training.progress(steps))

        return on_step

    def _take_over(self, shared: Shared, own: Part) -> None:
        self.policy.load_state_dict(shared.policy)
        for module, mode in zip(modules_of(self.policy), shared.training, strict=True):
            module.training = mode
        if self.normalizer is not None:
            self.normalizer.observations.load_state_dict(shared.normalizer or {})
        if self.frames is not None:
            self.frames.frames = own.frames

    def _restarted(self, acting: Sequence[ActingState[Any]], fresh: Observation) -> tuple[ActingState[Any], ...]:
        """The acting states of the groups at the start of new episodes with first observations `fresh` [B].

        The carries are not reset, because a policy ignores their memory in the first step of an episode.
        """
        if self.frames is not None:
            features, self.frames.frames = self.frames.push(self.frames.frames, fresh.features, fresh.is_first)
            fresh = Observation(features, fresh.is_first, fresh.action_mask)
        begun = split_acting(fresh, self.policy, len(acting))
        return tuple(ActingState(new.observation, old.carry) for new, old in zip(begun, acting, strict=True))


def modules_of(policy: object) -> list[nn.Module]:
    """The modules of a policy; an empty list if it is not a torch module."""
    return list(policy.modules()) if isinstance(policy, nn.Module) else []


def join_rollouts(rollouts: Sequence[Rollout[CarryT, ExtrasT]]) -> Rollout[CarryT, ExtrasT]:
    """Join the rollouts [T, B of the group] of several groups into one [T, B], as if all groups had been stepped together."""
    starts = [sum(r.steps.reward.shape[1] for r in rollouts[:group]) for group in range(len(rollouts))]
    steps = _joined([rollout.steps for rollout in rollouts], 1)
    return Rollout(
        steps,
        _joined([rollout.initial_carry for rollout in rollouts]),
        _joined([rollout.last_observation for rollout in rollouts]),
        _joined([rollout.last_carry for rollout in rollouts]),
        _join_finals([(r.final_observations, start) for r, start in zip(rollouts, starts, strict=True)]),
        _episodes_in_order(steps.terminated | steps.truncated, rollouts, starts),
        any(rollout.stopped for rollout in rollouts),
    )


def _join_finals(parts: Sequence[tuple[FinalObservations | None, int]]) -> FinalObservations | None:
    """Join the final observations of all groups, ordered by time and then by environment."""
    found = [replace(final, env=final.env + start) for final, start in parts if final is not None]
    if not found:
        return None
    every = _joined(found)
    width = int(every.env.max()) + 1
    # the order in which a single collector would have met them
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
    # callbacks and statistics see episodes in the same order for every number of groups
    order = [env for env in ended.nonzero()[:, 1].tolist() if env in waiting]
    return tuple(waiting[env].pop(0) for env in order if waiting[env])


def _joined(parts: Sequence[NodeT], dim: int = 0) -> NodeT:
    """Join the values of several groups along `dim`. Leaves without this dimension are taken from the first group."""
    if len(parts) == 1:
        return parts[0]
    return map_tensors(lambda *leaves: torch.cat(leaves, dim) if leaves[0].dim() > dim else leaves[0], *parts)


# Collecting ahead of the learner: the next rounds are collected with older weights while the learner updates.
#
# Round r is collected with the weights that the learner had `max_lag` rounds earlier; the first rounds use the initial
# weights. This does not depend on the time that collecting and learning take, so the result depends on `max_lag` only.


_Collected: TypeAlias = "tuple[list[Part], Sequence[Packed | None]]"
"""The parts of a round, and the states of the environments after it."""


def _weights(shared: Shared) -> State:
    """A copy of the current weights, because the learner changes its own in place; files hold it in this form."""
    statistics = {} if shared.normalizer is None else {"normalizer": _copied(shared.normalizer)}
    return {"policy": _copied(shared.policy), "env_steps": shared.round.env_steps, **statistics}


def _copied(value: object) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return {name: _copied(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value


class RunningAhead:
    """The rounds of one training that are being collected, the earliest first."""

    def __init__(self, env: CollectorsVectorEnv, agent: DrivenAgent) -> None:
        self.env, self.agent = env, agent
        self._flying: deque[tuple[Round, Future[_Collected]]] = deque()

    def take(self, shared: Shared, own: list[Part]) -> list[Part]:
        """Return the parts of the rollout of the round in `shared`; wait until it is collected.

        Args:
            shared: contains the current weights, which act `max_lag` rounds later.
            own: the acting state of each collector.

        Raises:
            EnvironmentFault: rounds with other settings have begun, and the environment states before them cannot be
                read.
        """
        wanted, lag = shared.round, self.env.max_lag
        now = _weights(shared)
        ahead = (*self.agent.ahead[-lag:], now)
        ahead += (now,) * (lag + 1 - len(ahead))
        if self._flying and self._flying[0][0] != wanted and not self.leave():
            raise EnvironmentFault(
                f"environment {self.env.name!r}: its state cannot be read, so a round that its collectors began cannot"
                " be repeated with other settings; leave out max_lag"
            )
        if not self._flying:
            self._begin(wanted, shared, ahead[0], own)
        _, future = self._flying.popleft()
        try:
            parts, self.env.standing = future.result()
        except BaseException:
            self._flying.clear()
            raise
        self.agent.ahead = ahead[1:]
        self.env.lag = (wanted.env_steps - ahead[0]["env_steps"]) // (wanted.length * self.env.num_envs)
        return parts

    def begin_further(self, shared: Shared, own: list[Part], end: int, *, exact: bool) -> None:
        """Begin the rounds after that in `shared` whose weights are known, up to `end` environment steps. With `exact`, the
        last one is shorter."""
        after = shared.round
        size = after.length * self.env.num_envs
        for number, weights in list(enumerate(self.agent.ahead, start=1))[len(self._flying) :]:
            steps = after.env_steps + number * size
            if steps >= end:
                break
            length = min(after.length, (end - steps) // self.env.num_envs) if exact else after.length
            self._begin(Round(length, True, steps, after.schedule), shared, weights, own)
        if not self._flying:
            self.env.standing = None

    def _begin(self, wanted: Round, shared: Shared, weights: State, own: list[Part]) -> None:
        """Begin a round after those that have begun. If there are none, `own` contains the acting states."""
        before = self._flying[-1][1] if self._flying else None
        sent = replace(shared, policy=weights["policy"], normalizer=weights.get("normalizer"), round=wanted)

        def work() -> _Collected:
            parts = own if before is None else [replace(part, rollout=None) for part in before.result()[0]]
            return self.env.collect(sent, parts), self.env.states

        self._flying.append((wanted, self.env.begin(work)))

    def leave(self) -> bool:
        """Discard the rounds that have begun and restore the environments to the state before them.

        Returns False if their state cannot be read.
        """
        self._flying.clear()
        return self.env.rewind()
