"""Vector environments and their optional abilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from rlsdk.interfaces.policy import Policy, State, optional
from rlsdk.records import ActingState, EnvStep, Observation, Rollout
from rlsdk.spaces import Space

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
Indices = int | Sequence[int] | None


class VectorEnv(Protocol):
    """B environments stepped together.

    An agent accepts any object with these members; the spaces may be those of gymnasium. Optional members are those of
    `VectorEnvAbilities` and `StepsInPlace`.
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


@optional
class VectorEnvAbilities(Protocol):
    """What a vector environment may do in addition to `VectorEnv`. Derive from it or not: only the names count.

    `indices` names one environment, several, or all (None).
    """

    @property
    def device(self) -> str | torch.device:
        """The device of the tensors in records, where actions are taken too; without it, the CPU.

        If it is the agent's device, nothing is copied between CPU and GPU.
        """
        ...

    @property
    def has_masks(self) -> bool:
        """Whether observations contain action masks, stated before the first reset."""
        ...

    def get_state(self) -> State:
        """Return the state, so that a training resumes in the middle of episodes.

        Raises `rlsdk.environments.OpaqueValue` if it cannot be read.
        """
        ...

    def set_state(self, state: State, /) -> object: ...

    def select_info(self, names: Sequence[str], /) -> object:
        """Select the entries that `EnvStep.info` contains from now on, float32 [B] each. Without names it is empty."""

    def keep_infos(self, keep: bool, /) -> object:
        """Choose whether `EnvStep.infos` contains B mappings from now on, which some callbacks need; if False it is None."""

    def get_attr(self, name: str, indices: Indices = None) -> Sequence[object]:
        """Return an attribute of the separate environments that this vector consists of."""
        ...

    def set_attr(self, name: str, value: object, indices: Indices = None) -> object: ...

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> Sequence[object]: ...

    def wrappers(self, indices: Indices = None) -> Sequence[Sequence[str]]:
        """The class names of the wrappers of each environment; see `rlsdk.environments.adapters.checks.wrappers_of`."""
        ...

    def reset_infos(self) -> Sequence[dict[str, object]]:
        """The `info` of each environment's last reset."""
        ...

    def set_options(self, options: object = None) -> None:
        """Set the options that `reset` of each environment gets next: a dict for all, or a list with one for each."""

    def check_agent(self, agent: Any, *, new: bool) -> None:
        """Check that an agent can train here, when it gets these environments.

        Args:
            agent: the state of the agent, with `config`, `parts` and `context`. If it is new, `config` may be replaced.
            new: whether it was just made; otherwise it got other environments, as with `set_env`.

        Raises:
            SettingsError: it cannot; the message names the setting to change.
        """

    def collector(self, run: Any) -> Collector | None:
        """Make a collector, when a training begins and after its settings changed; None: it collects as usual, with `step`.

        Args:
            run: the call of `learn`, a `rlsdk.callbacks.Run`. `run.driven` has the agent's state. `run.copies()` gives a
                function (vector environment) -> a copy of that state, to act in other processes; it can be pickled.

        A collector may have a method `leave`, called when it is replaced and when the training ends. It discards what was
        collected ahead, and returns False if new episodes must begin.
        """
        ...

    def map(
        self, work: Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT], /
    ) -> list[ResultT]:
        """Call `work(environments, items)` for groups of items, for plans that play whole episodes (`plays_episodes`).

        Return the results in the order of the items.
        """
        ...


@runtime_checkable
class StepsInPlace(Protocol):
    """Environments that can write observations and rewards directly into the storage of a rollout; see
    `PolicyAbilities.act_in_place`."""

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
