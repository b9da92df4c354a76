"""The argument and the result of a plugin's `build` (`BuildContext`, `Parts`), and the argument of plans (`Training`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, runtime_checkable

from torch import Generator, Tensor
from typing_extensions import TypeVar

from rlsdk.errors import UnsupportedSpaceError, UsageError
from rlsdk.interfaces.environment import Collector
from rlsdk.interfaces.policy import Algorithm, Buffer, Policy, Stateful, optional
from rlsdk.records import Cursor, Metrics, Report, Unit
from rlsdk.runtime.process import Streams
from rlsdk.spaces import Box, Space, leaf_spaces

NestedT = TypeVar("NestedT")
BatchT = TypeVar("BatchT", default=Any)
"""The type that the buffer samples and the algorithm takes: `Transitions`, `Rollout`, or a record of the plugin."""
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def as_it_is(values: NestedT, /) -> NestedT:
    """Return the values unchanged. The default conversion, used without normalization."""
    return values


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The spaces, device and random streams for which `build` creates the parts."""

    observation_space: Space
    action_space: Space
    num_envs: int
    device: str
    streams: Streams
    masks: bool = False
    """Whether observations contain action masks that the algorithm uses, if known when the parts are built."""
    ignores_masks: bool = False
    """Whether the algorithm ignores action masks; buffers then need not store them."""
    goals: GoalRewards | None = None
    """Computes rewards for other goals, for buffers that replace goals (hindsight replay)."""
    frames: Frames | None = None
    """Describes how frames are stacked, for buffers that store each frame once; None if frames are not stacked."""
    to_gymnasium: Callable[[Space], Any] | None = None
    """Converts a space of rlsdk into a gymnasium space, for features extractors of users."""
    observation_normalizer: Conversion = as_it_is
    """Normalizes observations [.., *shape] per leaf, with frames stacked, as the networks receive them.

    It uses the current statistics and does not change them. Only algorithms with a buffer or data outside of
    `Parts.buffer` need it: on-policy rollouts, and the `Transitions` and `Sequences` of `Parts.sample`, are normalized
    already.
    """
    reward_normalizer: Callable[[Tensor], Tensor] = as_it_is
    """Normalizes rewards of any shape as the algorithm learns from them; see `observation_normalizer`."""
    algorithm: str = ""
    """Id of the algorithm, for error messages."""

    @property
    def observes_images(self) -> bool:
        """Whether an observation contains an image."""
        return any(isinstance(leaf, Box) and leaf.is_image for _, leaf in leaf_spaces(self.observation_space))


@dataclass(frozen=True, slots=True)
class Parts(Generic[BatchT]):
    """The parts of one agent, as `build` returns them. `behavior` acts during training, with exploration; `policy`
    otherwise."""

    policy: Policy[Any, Any]
    algorithm: Algorithm[BatchT]
    plan: Plan
    buffer: Buffer[Any, BatchT] | None = None
    behavior: Policy[Any, Any] | None = None
    info: tuple[str, ...] = ()
    """Names of entries of the environment's `info` that the algorithm reads from `StepData.info`, in addition to those
    in the manifest. Use this field for names that depend on a setting."""
    states: Mapping[str, Stateful] = field(default_factory=dict)
    """Further networks, optimizers, buffers and states by name, such as `{"curiosity": network, "returns":
    normalizer}`.

    They are saved, resumed and moved to the agent's device. Buffers (objects with `extend` and `sample`) are saved only
    where the replay buffer is. A plan with `state_dict` and `load_state_dict` needs no entry.
    """
    preprocess_batch: Conversion = as_it_is
    """Converts a batch of `buffer` into the batch that the algorithm learns from. The agent sets it; see
    `rlsdk.preprocessing`."""

    @property
    def behavior_policy(self) -> Policy[Any, Any]:
        """The policy that collects experience: `behavior`, or `policy` if there is none."""
        return self.policy if self.behavior is None else self.behavior

    def sample(self, size: int, generator: Generator) -> BatchT:
        """Return a batch of the buffer as the algorithm learns from it: normalized if the agent normalizes.

        Raises:
            UsageError: there is no buffer, or it is empty.
        """
        if self.buffer is None:
            raise UsageError("these parts have no buffer to sample from; on-policy algorithms learn from rollouts")
        return self.preprocess_batch(self.buffer.sample(size, generator))


@dataclass(frozen=True, slots=True)
class Training:
    """The argument of `Plan.rounds`: the collector, the parts, the random streams, and the range of counts to train over."""

    collector: Collector
    parts: Parts
    streams: Streams
    start: int
    """The count, in the plan's unit, at which progress is 0 (for schedules)."""
    end: int
    """The count, in the plan's unit, at which the training ends; the last round may exceed it unless `exact`."""
    device: str
    schedule_end: int | None = None
    """The count at which progress is 1; None: `end`."""
    exact: bool = False
    """Whether the training ends exactly at `end`. The collector then cuts the last rollout."""

    def progress(self, count: int) -> float:
        """Return the progress at `count`: 0 at the start of training, 1 at its end or the end of its schedules."""
        end = self.end if self.schedule_end is None else self.schedule_end
        # the last round may pass the end, and a training of 0 steps has no length
        return min(1.0, (count - self.start) / max(1, end - self.start))

    def ends_exactly(self, count: int) -> bool:
        """Return whether the training ends exactly at `count`. A round that was cut there is learned from as a whole one."""
        return self.exact and count >= self.end


ALL = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
"""The names of all kinds of spaces."""


def require_spaces(
    context: BuildContext, algorithm: str, *, actions: tuple[str, ...] = ALL, observations: tuple[str, ...] = ALL
) -> None:
    """Refuse spaces that an algorithm does not support; `actions` and `observations` name those it supports, by default
    all.

    Raises:
        UnsupportedSpaceError: names the space and lists what is supported.
    """
    kind, top = type(context.action_space).__name__, type(context.observation_space).__name__
    if kind not in actions:
        raise UnsupportedSpaceError(
            f"{algorithm} cannot act in a {kind} action space; supported action spaces: {', '.join(actions)}"
        )
    for path, leaf in (("observation", context.observation_space), *leaf_spaces(context.observation_space)):
        if type(leaf).__name__ not in observations:
            raise UnsupportedSpaceError(
                f"{algorithm} cannot read {path}, a {type(leaf).__name__} space (of a {top} observation);"
                f" supported observation spaces: {', '.join(observations)}"
            )


@runtime_checkable
class Plan(Protocol):
    """The training loop of an algorithm.

    `rlsdk.training` has the plans `OnPolicyPlan` and `OffPolicyPlan`, rlsdk-datasets has `OfflinePlan`, and rlsdk-ars has
    `PopulationPlan`. A plugin may define another one: any object with these members.
    """

    @property
    def needs_environment(self) -> bool:
        """Whether `rounds` collects experience. If False, an agent trains without an environment."""
        ...

    @property
    def unit(self) -> Unit:
        """The unit of `learn(total_timesteps)` and of progress: environment steps or updates."""
        ...

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """The unit of `learn(log_interval)`: finished episodes (default interval 4) or rounds (default interval 1)."""
        ...

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train from `cursor` until `training.end`, and yield the new cursor and a report after every round.

        A round is one pass of the loop: collect data, then update. The driver may leave the loop after any round and
        call `rounds` again with the last cursor. Counts never decrease.
        """
        ...


@optional
class PlanAbilities:
    """What a plan may do in addition to `Plan`. Derive from it or not: only the names count."""

    def check_parts(self, parts: Any, /) -> object:
        """Check the other `Parts` beyond their required members; called when an agent is assembled.

        Raises:
            PluginError: a part lacks a member that the plan calls.
        """
        raise NotImplementedError

    @property
    def n_steps(self) -> int:
        """The length T of the rollout that each round collects and updates the algorithm with, in vector steps."""
        raise NotImplementedError

    @property
    def plays_episodes(self) -> bool:
        """Whether rounds play whole episodes with `rlsdk.training.LocalCollector.play` instead of collecting steps. Such a plan
        acts and normalizes observations itself. Frames are not stacked for it, and its rounds are not cut."""
        raise NotImplementedError

    def with_settings(self, config: Any, context: Any) -> Any:
        """Return the plan with the settings of `config`; `context` is the `BuildContext`. Settings missing in `config`
        do not change.

        Raises:
            SettingsError: the settings do not fit each other.
        """
        raise NotImplementedError

    def learn_offline(self, training: Any, count: int, batch_size: int | None) -> Metrics:
        """Make `count` updates from the buffer alone, without collecting, and return their mean metrics (`Agent.train`).
        `batch_size` None means the plan's batch size."""
        raise NotImplementedError


class GoalRewards(Protocol):
    """Computes the rewards that a goal environment would give for other goals than the desired goal of the episode."""

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return (reward float32 [M], terminated bool [M] or None) for `achieved` [M, ..] when the goal is `goal` [M, ..]."""
        ...


class Frames(Protocol):
    """Stacks frames: the last `count` observations of the environment, each from the space `single`, become one observation."""

    single: Space
    count: int

    def newest(self, features: NestedT) -> NestedT:
        """Return the last frame [.., *single] of stacked observations [.., *stacked]."""
        ...

    def joined(self, frames: NestedT) -> NestedT:
        """Stack frames [N, count, *single], the newest last, into observations [N, *stacked]."""
        ...


class Conversion(Protocol):
    """A function of tensors, or of mappings, tuples and records of tensors, that returns a value of the same structure."""

    def __call__(self, values: NestedT, /) -> NestedT: ...


class Executor(Protocol):
    """Runs independent items of work in this process, in other processes or on other machines, with the same results.

    If the process or machine of an item dies, the item is run again, a bounded number of times; then `WorkError` is
    raised. An exception of an item is raised in the calling process with its class, if that can be imported, else as
    `WorkError`. The traceback of the other process is in the notes of the exception.
    """

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """Return `work(item)` for every item, in the order of the items. `work` and the items must be picklable.

        The first exception ends the call: items that have not started are not run.
        """
        ...

    def submit(self, work: Callable[[ItemT], ResultT], item: ItemT) -> Future[ResultT]:
        """Run `work(item)` and return a future. At most one item per worker runs at a time."""
        ...

    def close(self) -> None:
        """End all workers that this executor started. Do not call `map` or `submit` afterwards."""


@runtime_checkable
class Serializer(Protocol):
    """Writes and reads tensors together with a JSON document. Loading a file runs no code from it."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None: ...

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def inspect(self, path: Path) -> dict[str, Any]:
        """Return the document and the names, dtypes and shapes of the tensors, without reading the tensors."""
        ...
