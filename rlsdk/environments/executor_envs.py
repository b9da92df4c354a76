"""An environment whose whole episodes are played wherever an executor does its work."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NoReturn

import attrs
import numpy as np
from torch import Tensor

from rlsdk.environments.by_value import ByValue
from rlsdk.environments.copies import Copies, StepArrays, Work, groups
from rlsdk.environments.in_process import InProcessEnvs
from rlsdk.errors import UsageError
from rlsdk.interfaces import Executor
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space

_COPIES: dict[str, Copies] = {}
"""In a process of an executor: the environments it has made, by the play they belong to."""


@attrs.frozen
class Played:
    """`work(environments, items)` as a function of the items alone, with environments made where they are first needed."""

    token: str
    make: Any
    """Gives what makes an environment."""
    copies: int
    """How many of them."""
    spaces: tuple[Space, Space]
    name: str
    work: Any
    """Gives the function."""

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        if self.token not in _COPIES:
            make = self.make()
            made = [make() for _ in range(self.copies)]
            _COPIES[self.token] = Copies(made, *self.spaces, self.name, StepArrays(*self.spaces, len(made), np.zeros))
        return _COPIES[self.token].apply(self.work(), items)


class ExecutorEnvs:
    """One copy in this process, for spaces and attributes; `map` plays on `num_envs` copies, spread over the `workers` of
    the executor."""

    def __init__(
        self, make: Callable[[], Any], here: InProcessEnvs, executor: Executor, num_envs: int, workers: int
    ) -> None:
        self.here, self.executor, self.num_envs, self.workers = here, executor, num_envs, workers
        self.copies = -(-num_envs // workers)  # in each place
        self.observation_space, self.action_space = here.observation_space, here.action_space
        self.name, self.recipe, self.seeds, self.has_masks = here.name, here.recipe, here.seeds, here.has_masks
        self._make, self._token = ByValue(make), uuid.uuid4().hex

    def reset(self, seed: int | None = None) -> Observation:
        return self.here.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        """Never; see `refuse_steps`."""
        self.refuse_steps()

    def refuse_steps(self) -> NoReturn:
        """An executor has none.

        Raises:
            UsageError: says which kinds of vectorisation have.
        """
        raise UsageError(
            f"environment {self.name!r} is played by an executor, which plays whole episodes, for population methods such"
            " as ARS; other algorithms step their environments: use vectorization='sync' or 'async'"
        )

    def keep_infos(self, keep: bool) -> None:
        """Nothing to do: it has no steps."""

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        """The attribute of the copy in this process."""
        return self.here.get_attr(name, indices)

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        """`work(environments, items)` of groups of items, wherever the executor does it; answers in order."""
        pair, shipped = (self.observation_space, self.action_space), ByValue(work)
        played = Played(self._token, self._make, self.copies, pair, self.name, shipped)
        return list(chain.from_iterable(self.executor.map(played, groups(items, self.copies, self.workers))))

    def close(self) -> None:
        """Close the copy here and the executor."""
        self.here.close()
        self.executor.close()
