"""An environment whose whole episodes are played wherever an executor does its work."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from torch import Tensor

from rlsdk.environments.copies import Copies, StepArrays
from rlsdk.environments.in_process import InProcessEnvs
from rlsdk.errors import UsageError
from rlsdk.interfaces import Executor
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space

_COPIES: dict[str, Copies] = {}
"""In a process of an executor: the environments it has made, by the play they belong to."""


@attrs.frozen
class Played:
    """`work(environment, item)` as a function of the item alone, with an environment made where it is first needed."""

    token: str
    make: Any
    """A callable (pickled by value) that makes the environment."""
    spaces: tuple[Space, Space]
    name: str
    work: Any
    """Likewise; gives the function."""

    def __call__(self, item: Any) -> Any:
        if self.token not in _COPIES:
            _COPIES[self.token] = Copies([self.make()], *self.spaces, self.name, StepArrays(*self.spaces, 1, np.zeros))
        return _COPIES[self.token].apply(self.work(), item)


class ExecutorEnvs:
    """One copy in this process, for spaces and attributes; `map` plays on the executor's copies."""

    def __init__(self, make: Callable[[], Any], here: InProcessEnvs, executor: Executor) -> None:
        self.here, self.executor, self.num_envs = here, executor, 1
        self.observation_space, self.action_space = here.observation_space, here.action_space
        self.name, self.recipe, self.seeds, self.has_masks = here.name, here.recipe, here.seeds, here.has_masks
        self._make, self._token = CloudpickleWrapper(make), uuid.uuid4().hex

    def reset(self, seed: int | None = None) -> Observation:
        return self.here.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        """Never: an executor has no steps.

        Raises:
            UsageError: says which kinds of vectorisation have.
        """
        raise UsageError(
            f"environment {self.name!r} is played by an executor, which plays whole episodes, for population methods such"
            " as ARS; other algorithms step their environments: use vectorization='sync' or 'async'"
        )

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        """The attribute of the copy in this process."""
        return self.here.get_attr(name, indices)

    def map(self, work: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """`work(environment, item)` for every item, wherever the executor does it; answers in order."""
        pair, shipped = (self.observation_space, self.action_space), CloudpickleWrapper(_constant(work))
        return self.executor.map(Played(self._token, self._make, pair, self.name, shipped), items)

    def close(self) -> None:
        """Close the copy here and the executor."""
        self.here.close()
        self.executor.close()


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value
