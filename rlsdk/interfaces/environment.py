"""Vector environments and their optional abilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Generator, Tensor

from rlsdk.interfaces.policy import Policy, State
from rlsdk.records import ActingState, EnvStep, Features, Observation, Rollout
from rlsdk.spaces import Space

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
StateT = TypeVar("StateT")
State_contra = TypeVar("State_contra", contravariant=True)
CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class VectorEnv(Protocol):
    """B environments stepped together.

    An agent accepts any object with these members; the spaces may be those of gymnasium. The Protocols of optional
    abilities are `HasDevice`, `HasMasks`, `CapturesState`, `SelectsInfo`, `KeepsInfos`, `HasSeparateEnvs`, `PlaysEpisodes` and
    `StepsInPlace`.
    """

    @property
    def num_envs(self) -> int: ...

    @property
    def observation_space(self) -> Space: ...

    @property
    def action_space(self) -> Space: ...

    def reset(self, seed: int | None = None) -> Observation: ...

    def step(self, action: Tensor) -> EnvStep: ...

    def close(self) -> None: ...


@runtime_checkable
class HasDevice(Protocol):
    """Environments whose records have their tensors on this device, and that take actions there; others are on the CPU.

    If that is the agent's device, nothing is copied between CPU and GPU.
    """

    @property
    def device(self) -> str | torch.device: ...


class TorchEnv(Protocol[StateT]):
    """An environment as functions of tensors, for `rlsdk_envs.make_torch_vec_env`.

    The names are those of gymnasium's `FuncEnv`. A state is a tensor, or a tuple, named tuple, dict or dataclass of tensors,
    all [B, ..]: the states of B environments. Functions return new tensors and change nothing else: neither their arguments
    nor, for example, a list. They draw random numbers from `rng` only. A GPU can replay them as a CUDA graph if they do not
    read values of tensors in Python, as in `if float(state[0]) > 1`.
    """

    @property
    def observation_space(self) -> object: ...

    @property
    def action_space(self) -> object: ...

    @property
    def max_episode_steps(self) -> int | None:
        """The step that truncates an episode; None: no limit."""
        ...

    def initial(self, count: int, rng: Generator) -> StateT:
        """Return `count` first states, on the device of `rng`."""
        ...

    def transition(self, state: StateT, action: Features, rng: Generator) -> StateT:
        """Return the next states. `action` is [B, ..], nested like the action space; actions of a float Box are clipped."""
        ...

    def observation(self, state: StateT) -> Features:
        """Return the observations [B, ..], nested like the space, in the dtypes of `rlsdk.spaces.dtype_of`."""
        ...

    def reward(self, state: StateT, action: Features, next_state: StateT) -> Tensor:
        """Return the rewards, float32 [B]."""
        ...

    def terminal(self, state: StateT) -> Tensor:
        """Return whether the episodes end in these states, bool [B]."""
        ...


@runtime_checkable
class InformsOfSteps(Protocol[State_contra]):
    """Environments in torch with entries of `info`, for algorithms that declare some."""

    def info(self, state: State_contra, action: Features, next_state: State_contra) -> Mapping[str, Tensor]:
        """Return the entries of `EnvStep.info` by name, float32 [B] each. It is called only if some are declared."""
        ...


@runtime_checkable
class MasksStates(Protocol[State_contra]):
    """Environments in torch that allow some actions only."""

    def action_mask(self, state: State_contra) -> Tensor:
        """Return the masks of these states, bool [B, A], True where the action is allowed."""
        ...


@runtime_checkable
class HasMasks(Protocol):
    """Environments that state before the first reset whether observations contain action masks."""

    @property
    def has_masks(self) -> bool: ...


@runtime_checkable
class CapturesState(Protocol):
    """Environments whose state can be saved and restored, so that a training resumes in the middle of episodes."""

    def get_state(self) -> State:
        """Return the state. Raises `rlsdk.environments.OpaqueValue` if it cannot be read."""
        ...

    def set_state(self, state: State, /) -> object: ...


@runtime_checkable
class SelectsInfo(Protocol):
    """Environments that return selected entries of `info` as tensors, for algorithms that use them."""

    def select_info(self, names: Sequence[str], /) -> object:
        """Select the entries that `EnvStep.info` contains from now on, float32 [B] each. Without names it is empty."""
        ...


@runtime_checkable
class KeepsInfos(Protocol):
    """Environments that can return the complete `info` of each step, which some callbacks need."""

    def keep_infos(self, keep: bool, /) -> object:
        """Choose whether `EnvStep.infos` contains B mappings from now on; if False it is None."""
        ...


@runtime_checkable
class StepsInPlace(Protocol):
    """Environments that can write observations and rewards directly into the storage of a rollout; see `ActsInPlace`."""

    def step_in_place(
        self, observation: Observation, action: Tensor, reward: Tensor, /
    ) -> Callable[[int], EnvStep | None] | None:
        """Prepare T steps of B environments.

        Short rollouts share a storage: then the method is called before each of them with the same storage, and the first step
        is not always 0.

        Args:
            observation: the storage of observations, [T + 1, B, ..].
            action: the storage of actions, [T, B, ..].
            reward: the storage of rewards, float32 [T, B].

        Returns:
            A function of t that makes step t: it reads `action[t]`, and writes `reward[t]` and row t + 1 of features and masks.
            It returns the record of the step if an episode ended or a callback ended the training, else None. Instead of a
            function, None if `step` must be called: steps have infos, or the storage does not fit.
        """
        ...


@runtime_checkable
class HasSeparateEnvs(Protocol):
    """Vectors of separate environments with accessible attributes and methods. `indices`: one, several, or all (None)."""

    def get_attr(self, name: str, indices: int | Sequence[int] | None = None) -> Sequence[object]: ...

    def set_attr(self, name: str, value: object, indices: int | Sequence[int] | None = None) -> object: ...

    def env_method(
        self, name: str, *args: object, indices: int | Sequence[int] | None = None, **kwargs: object
    ) -> Sequence[object]: ...


@runtime_checkable
class PlaysEpisodes(Protocol):
    """Environments in which population methods play whole episodes."""

    def map(
        self, work: Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT], /
    ) -> list[ResultT]:
        """Call `work(environments, items)` for groups of items; return the results in the order of the items."""
        ...


class Collector(Protocol):
    """Collects experience. It holds the environments, or a connection to them, and the acting states.

    The environments are divided into groups. Each group has separate random numbers for acting. The data therefore
    depend on the number of groups, but not on the process that steps a group.
    """

    @property
    def num_envs(self) -> int:
        """The number of environments of all groups together, B."""
        ...

    @property
    def acting(self) -> tuple[ActingState[Any], ...]:
        """The acting state of each group: the next observation and the policy's carry.

        `collect` replaces these records and modifies none in place.
        """
        ...

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """Make `length` vector steps [T], each of which steps every environment [B] once, and return them as a rollout.

        There are fewer steps if a callback ends the training.

        Args:
            policy: chooses the actions. The first `collect` of a round calls its `begin_rollout` before the first step.
            length: the number of vector steps, T.
            on_step: called after every vector step with the number of environment steps that this call has made so far.
            ends_round: False if the round continues with further calls; the plan then ends it with `end_round`.
        """
        ...

    def end_round(self) -> None:
        """End the round of collecting and call `on_rollout_end` of the callbacks. Outside of a round it does nothing."""
        ...


@runtime_checkable
class EpisodePlayer(Protocol):
    """A collector that plays whole episodes, in this or in other processes."""

    @property
    def observation_space(self) -> Space: ...

    def play(
        self, work: Callable[[Sequence[Any], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """Call `work(environments, items)` where the environments are, and return the results in the order of the
        items.

        The items may be divided over several calls. `work` and items must be picklable. There are fewer results if a
        callback ends the training in between.
        """
        ...
