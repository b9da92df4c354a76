"""The copy of the agent in a collector process, which collects in the environments of that process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rlsdk.interfaces import Collected, State, Training, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import ActingState, Features, Observation, Rollout
from rlsdk.runtime.threads import limited_threads
from rlsdk.training.collector import LocalCollector
from rlsdk.training.groups import group_generators, split_acting
from rlsdk.training.no_collector import NoCollector
from rlsdk.training.trained_agent import MakesCopy


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a training, for algorithms that use the number of environment steps."""

    env_steps: int
    """Steps of all environments before this part."""
    start: int
    """The count at which progress is 0."""
    end: int
    """The count at which progress is 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The data that all collectors need to collect one part of a round."""

    policy: State
    normalizer: State | None
    """The state of the statistics of observations; None without normalisation."""
    training: tuple[bool, ...]
    """The `training` flag of each module of the policy."""
    length: int
    begins: bool
    """Whether this part begins a round."""
    threads: int
    counts: Counts | None = None
    """None if no algorithm counts steps while collecting."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The data of one collector: its acting state before the part, or, with a rollout, after it."""

    acting: tuple[ActingState[Any], ...]
    generators: tuple[Tensor, ...]
    """The state of each group's generator."""
    frames: Features
    """The last frames of the collector's environments, if frames are stacked."""
    rollout: Rollout[Any, Any] | None = None
    """The rollout as the environments returned it, without normalisation."""


class CollectingCopy:
    """Collects in the environments of a collector process with a copy of the policy."""

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
            raw = None if self.normalizer is None else RolloutNormalizer(self.normalizer, keeps_raw=True)
            self._collector = collector = LocalCollector(self.env, acting, generators, raw)
        collector.acting = acting
        if shared.begins:
            collector.end_round()
        rollout = collector.collect(self.policy, shared.length, on_step=self._counting(shared), ends_round=False)
        states = tuple(generator.get_state() for generator in generators)
        return Part(collector.acting, states, self.frames and self.frames.memory, rollout)

    def _counting(self, shared: Shared) -> Callable[[int], object] | None:
        """Return the `on_step` function that passes the steps of all environments to the copy of the algorithm.

        Exploration may depend on this number.
        """
        listener, counts = ability(self.agent.parts.algorithm, Collected), shared.counts
        if listener is None or counts is None:
            return None
        agent, total = self.agent, self.agent.context.num_envs
        own = self.env.num_envs
        training = Training(NoCollector(), agent.parts, agent.streams, counts.start, counts.end, agent.context.device)

        def on_step(done: int) -> None:
            steps = counts.env_steps + done // own * total
            listener.collected(steps, training.progress(steps))

        return on_step

    def _take_over(self, shared: Shared, own: Part) -> None:
        self.policy.load_state_dict(shared.policy)
        for module, mode in zip(modules_of(self.policy), shared.training, strict=True):
            module.training = mode
        if self.normalizer is not None:
            self.normalizer.observations.load_state_dict(shared.normalizer or {})
        if self.frames is not None:
            self.frames.memory = own.frames

    def _restarted(self, acting: Sequence[ActingState[Any]], fresh: Observation) -> tuple[ActingState[Any], ...]:
        """The acting states of the groups at the start of new episodes with first observations `fresh` [B].

        The carries are not reset, because a policy ignores their memory in the first step of an episode.
        """
        if self.frames is not None:
            features, self.frames.memory = self.frames.push(self.frames.memory, fresh.features, fresh.is_first)
            fresh = Observation(features, fresh.is_first, fresh.action_mask)
        begun = split_acting(fresh, self.policy, len(acting))
        return tuple(ActingState(new.observation, old.carry) for new, old in zip(begun, acting, strict=True))


class Attaching:
    """A picklable function that creates the `CollectingCopy` of a collector."""

    def __init__(self, make: MakesCopy) -> None:
        self.make = make

    def __call__(self, env: VectorEnv) -> CollectingCopy:
        return CollectingCopy(env, self.make)


def modules_of(policy: object) -> list[nn.Module]:
    """The modules of a policy; an empty list if it is not a torch module."""
    return list(policy.modules()) if isinstance(policy, nn.Module) else []
