"""A vector environment that plays whole episodes in the workers of an executor, for population methods."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Generic, NoReturn

import attrs
import numpy as np
from torch import Tensor

from rlsdk.environments.adapters.attributes import Environment, Indices
from rlsdk.environments.states import OpaqueValue
from rlsdk.environments.vector.by_value import ByValue
from rlsdk.environments.vector.connected import SteppedVector, no_separate
from rlsdk.environments.vector.environment_group import EnvironmentGroup
from rlsdk.environments.vector.item_groups import ItemT, ResultT, Work, groups
from rlsdk.environments.vector.step_arrays import StepArrays
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.errors import UsageError
from rlsdk.interfaces import Executor
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space

_GROUPS: dict[tuple[str, int], EnvironmentGroup] = {}
"""The environments made in this process of an executor: (token of the vector environment, thread) -> group."""


@attrs.frozen
class GroupWork(Generic[ItemT, ResultT]):
    """`work(environments, items)` as a function of `items`. The environments are made at the first call in a process."""

    token: str
    make: ByValue[Callable[[], Environment]]
    copies: int
    """The number of environments to make."""
    spaces: tuple[Space, Space]
    name: str
    work: ByValue[Work[ItemT, ResultT]]

    def __call__(self, items: Sequence[ItemT]) -> list[ResultT]:
        place = self.token, threading.get_ident()
        if place not in _GROUPS:
            make = self.make()
            made = [make() for _ in range(self.copies)]
            arrays = StepArrays(*self.spaces, len(made), np.zeros)
            _GROUPS[place] = EnvironmentGroup(made, arrays, self.name)
        return _GROUPS[place].apply(self.work(), items)


class ExecutorVectorEnv(SteppedVector):
    """A vector environment whose `map` plays episodes on `num_envs` copies, distributed over the workers of an executor.

    One copy in this process, `here`, gives spaces and attributes.
    """

    def __init__(
        self, make: Callable[[], Environment], here: SyncVectorEnv, executor: Executor, num_envs: int, workers: int
    ) -> None:
        self.here, self.executor, self.num_envs, self.workers = here, executor, num_envs, workers
        self.copies = -(-num_envs // workers)  # number of copies in each worker, rounded up
        super().__init__(here.observation_space, here.action_space, here.name)
        self.seeds, self.has_masks = here.seeds, here.has_masks
        self._make, self._token = ByValue(make), uuid.uuid4().hex

    def reset(self, seed: int | None = None) -> Observation:
        return self.here.reset(seed)

    def set_options(self, options: object = None) -> None:
        """Raises UsageError, because the copies are reset in the workers of the executor, with a seed only."""
        if options:
            no_separate(self.name, "set_options")

    def step(self, action: Tensor) -> EnvStep:
        """Raises UsageError; see `require_steps`."""
        self.require_steps()

    def require_steps(self) -> NoReturn:
        """Raises UsageError, because an executor plays whole episodes only. The message names other vectorisations."""
        raise UsageError(
            f"environment {self.name!r} is played by an executor, which plays whole episodes, for population methods such"
            " as ARS; other algorithms step their environments: use vectorization='sync' or 'async'"
        )

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The attribute of the copy in this process."""
        return self.here.get_attr(name, indices)

    def set_attr(self, name: str, value: object, indices: Indices = None) -> NoReturn:
        """Raises UsageError, because the copies are made in the workers of the executor."""
        no_separate(self.name, "set_attr")

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the copy in this process."""
        return self.here.env_method(name, *args, indices=indices, **kwargs)

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of the copy in this process."""
        return self.here.wrappers(indices)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of the last reset of the copy in this process."""
        return self.here.reset_infos()

    def fingerprint(self) -> Hashable:
        """A value that changes when the copy in this process is stepped or reset."""
        return self.here.fingerprint()

    def get_state(self) -> NoReturn:
        """Raises OpaqueValue, because only whole episodes are played and none is unfinished."""
        raise OpaqueValue("an executor has no environments between episodes")

    def set_state(self, state: object, /) -> NoReturn:
        """Raises OpaqueValue; see `get_state`."""
        self.get_state()

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, which the executor's workers do for groups of items, in order."""
        pair, shipped = (self.observation_space, self.action_space), ByValue(work)
        played = GroupWork(self._token, self._make, self.copies, pair, self.name, shipped)
        return list(chain.from_iterable(self.executor.map(played, groups(items, self.copies, self.workers))))

    def close(self) -> None:
        """Close the copy in this process and the executor."""
        self.here.close()
        self.executor.close()
