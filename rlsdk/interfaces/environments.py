"""Vectors of environments and their optional abilities, which are looked for by `isinstance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

from rlsdk.interfaces.state import State
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class VectorEnv(Protocol):
    """B environments stepped together.

    An agent takes any object with these members; its spaces may be gymnasium's. Optional abilities are the Protocols
    that follow: `HasMasks`, `CapturesState`, `SelectsInfo`, `KeepsInfos`, `HasSeparateEnvs`, `PlaysEpisodes`.
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
class HasMasks(Protocol):
    """Environments that know before the first reset whether observations carry action masks."""

    @property
    def has_masks(self) -> bool: ...


@runtime_checkable
class CapturesState(Protocol):
    """Environments whose state can be taken out and put back, so that a training resumes in the middle of episodes."""

    def get_state(self) -> State:
        """Raises `rlsdk.environments.states.OpaqueValue` where the state cannot be read."""
        ...

    def set_state(self, state: State, /) -> object: ...


@runtime_checkable
class SelectsInfo(Protocol):
    """Environments that return the entries of `info` that an algorithm declares."""

    def select_info(self, names: Sequence[str], /) -> object:
        """From now on `EnvStep.info` has these entries, float32 [B] each; none: it is empty."""
        ...


@runtime_checkable
class KeepsInfos(Protocol):
    """Environments that give all of `info` where a callback needs it."""

    def keep_infos(self, keep: bool, /) -> object:
        """Whether `EnvStep.infos` holds B mappings from now on, or None."""
        ...


@runtime_checkable
class HasSeparateEnvs(Protocol):
    """Vectors of separate environments, whose attributes and methods can be reached. `indices`: one, several, or all (None)."""

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
        """`work(environments, items)` for groups of items; returns their results in order."""
        ...
