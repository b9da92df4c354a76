"""The argument and the result of a plugin's `build` (`BuildContext`, `Parts`), and the argument of plans (`Training`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from torch import Generator, Tensor
from typing_extensions import TypeVar

from rlsdk.errors import UnsupportedSpaceError, UsageError
from rlsdk.interfaces.algorithms import Algorithm
from rlsdk.interfaces.buffers import Buffer
from rlsdk.interfaces.collecting import Collector
from rlsdk.interfaces.context_protocols import Conversion, Frames, GoalRewards
from rlsdk.interfaces.plans import Plan
from rlsdk.interfaces.policies import Policy
from rlsdk.interfaces.state import Stateful
from rlsdk.runtime.seeding import Streams
from rlsdk.spaces import Box, Space, leaf_spaces

NestedT = TypeVar("NestedT")
BatchT = TypeVar("BatchT", default=Any)
"""The type that the buffer samples and the algorithm takes: `Transitions`, `Rollout`, `Scored`, or a record of the plugin."""


def as_it_is(values: NestedT, /) -> NestedT:
    """Return the values unchanged. The default conversion, used without normalisation."""
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
    """Normalises observations [.., *shape] per leaf, with frames stacked, as the networks receive them.

    It uses the current statistics and does not change them. Only algorithms with a buffer or data outside of
    `Parts.buffer` need it: on-policy rollouts, and the `Transitions` and `Sequences` of `Parts.sample`, are normalised
    already.
    """
    reward_normalizer: Callable[[Tensor], Tensor] = as_it_is
    """Normalises rewards of any shape as the algorithm learns from them; see `observation_normalizer`."""
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
    plan: Plan[Training]
    buffer: Buffer[Any, BatchT] | None = None
    behavior: Policy[Any, Any] | None = None
    info: tuple[str, ...] = ()
    """Names of entries of the environment's `info` that the algorithm reads from `StepData.info`, in addition to those
    in the manifest. Use this field for names that depend on a setting."""
    states: Mapping[str, Stateful] = field(default_factory=dict)
    """Further networks, optimisers, buffers and states by name, such as `{"curiosity": network, "returns":
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
        """Return a batch of the buffer as the algorithm learns from it: normalised if the agent normalises.

        Raises:
            UsageError: there is no buffer, or it is empty.
        """
        if self.buffer is None:
            raise UsageError("these parts have no memory to sample from; on-policy algorithms learn from rollouts")
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
