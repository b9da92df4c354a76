"""What `build` takes and returns: `BuildContext` and `Parts`; and `Training`, which plans take."""

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
"""What the buffer samples and the algorithm takes: `Transitions`, `Rollout`, `Scored`, or a record of the plugin's own."""


def as_it_is(values: NestedT, /) -> NestedT:
    """The values themselves, where nothing is normalised."""
    return values


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Environment, device and random streams for which the parts are built."""

    observation_space: Space
    action_space: Space
    num_envs: int
    device: str
    streams: Streams
    masks: bool = False
    """Whether observations carry action masks that the algorithm uses, if known when the parts are built."""
    ignores_masks: bool = False
    """Whether the algorithm ignores masks; memories need not store them."""
    goals: GoalRewards | None = None
    """Computes rewards for other goals, for memories that replace goals."""
    frames: Frames | None = None
    """How frames are stacked, for memories that store each frame once; None: they are not stacked."""
    to_gymnasium: Callable[[Space], Any] | None = None
    """Makes the gymnasium space of one of ours, for users' features extractors."""
    observation_normalizer: Conversion = as_it_is
    """Observations [.., *shape] per leaf as the environment gives them (frames stacked) -> as networks see them, with the
    current statistics. For algorithms that sample a memory of their own or bring their own data: rollouts on-policy, and the
    `Transitions` and `Sequences` of `Parts.sample`, are normalised already. Statistics do not change."""
    reward_normalizer: Callable[[Tensor], Tensor] = as_it_is
    """Rewards of any shape as the environment gives them -> as the algorithm learns from them; see `observation_normalizer`."""
    algorithm: str = ""
    """Id of the algorithm, for errors."""

    @property
    def observes_images(self) -> bool:
        """Whether an observation holds an image."""
        return any(isinstance(leaf, Box) and leaf.is_image for _, leaf in leaf_spaces(self.observation_space))


@dataclass(frozen=True, slots=True)
class Parts(Generic[BatchT]):
    """One assembled agent. `behavior` acts during training (exploration included), `policy` everywhere else."""

    policy: Policy[Any, Any]
    algorithm: Algorithm[BatchT]
    plan: Plan[Training]
    buffer: Buffer[Any, BatchT] | None = None
    behavior: Policy[Any, Any] | None = None
    info: tuple[str, ...] = ()
    """Entries of environments' `info` that the algorithm reads from `StepData.info`, besides those of the manifest; for names
    that a setting chooses."""
    states: Mapping[str, Stateful] = field(default_factory=dict)
    """Further networks, optimisers, memories and states by name, such as `{"curiosity": network, "returns": normalizer}`. They
    are saved, resumed and moved to the agent's device; memories (with `extend` and `sample`) are saved where the replay buffer
    is. A plan that has `state_dict` and `load_state_dict` needs no name here."""
    preprocess_batch: Conversion = as_it_is
    """Given by the agent: what `buffer` samples -> what the algorithm learns from; see `rlsdk.preprocessing`."""

    @property
    def behavior_policy(self) -> Policy[Any, Any]:
        """The policy that collects experience."""
        return self.policy if self.behavior is None else self.behavior

    def sample(self, size: int, generator: Generator) -> BatchT:
        """A batch of the memory as the algorithm learns from it: normalised where the agent normalises.

        Raises:
            UsageError: there is no memory, or it is empty.
        """
        if self.buffer is None:
            raise UsageError("these parts have no memory to sample from; on-policy algorithms learn from rollouts")
        return self.preprocess_batch(self.buffer.sample(size, generator))


@dataclass(frozen=True, slots=True)
class Training:
    """What a plan trains with."""

    collector: Collector
    parts: Parts
    streams: Streams
    start: int
    """Where progress counts from (for schedules), in the plan's unit."""
    end: int
    """Where the training ends, in the plan's unit; the last round may pass it."""
    device: str

    def progress(self, count: int) -> float:
        """0 at the start of training ... 1 at its end."""
        return min(1.0, (count - self.start) / max(1, self.end - self.start))


ALL = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
"""Kinds of spaces."""


def require_spaces(
    context: BuildContext, algorithm: str, *, actions: tuple[str, ...] = ALL, observations: tuple[str, ...] = ALL
) -> None:
    """Refuse spaces an algorithm cannot handle; `actions` and `observations`: those it can, by default all there are.

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
