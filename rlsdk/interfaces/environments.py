"""Vector environments and their optional abilities."""

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

    An agent accepts any object with these members; the spaces may be those of gymnasium. The Protocols of optional
    abilities are `HasMasks`, `CapturesState`, `SelectsInfo`, `KeepsInfos`, `HasSeparateEnvs` and `PlaysEpisodes`.
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
    """Environments that state before the first reset whether observations contain action masks."""

    @property
    def has_masks(self) -> bool: ...


@runtime_checkable
class CapturesState(Protocol):
    """Environments whose state can be saved and restored, so that a training resumes in the middle of episodes."""

    def get_state(self) -> State:
        """Return the state. Raises `rlsdk.environments.states.OpaqueValue` if it cannot be read."""
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
