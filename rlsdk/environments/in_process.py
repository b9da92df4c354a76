"""Several environments of this process as one vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.attributes import Indices, call_of, chosen, read, wrappers_of, write
from rlsdk.environments.copies import Copies, StepArrays, Work
from rlsdk.environments.seeds import Seeds
from rlsdk.environments.states import masks_in, state_of, states_in
from rlsdk.environments.step_records import StepRecords
from rlsdk.records import EnvStep, Observation
from rlsdk.spaces import Space


class InProcessEnvs:
    """B gymnasium environments stepped one after another; an episode that ends is followed by a reset in the same step."""

    def __init__(
        self,
        environments: Sequence[Any],
        observation_space: Space,
        action_space: Space,
        *,
        name: str,
        seed: int | None = None,
    ) -> None:
        self.observation_space, self.action_space, self.name = observation_space, action_space, name
        self.num_envs, self.seeds = len(environments), Seeds(seed)
        self.recipe: str | None = None
        """The id that makes such an environment again, None where an id alone does not."""
        arrays = StepArrays(observation_space, action_space, self.num_envs, np.zeros)
        numbers = range(self.num_envs) if self.num_envs > 1 else ()
        self.copies = Copies(environments, observation_space, action_space, name, arrays, numbers=numbers)
        self._decode, self._records = ActionDecoder(action_space), StepRecords(observation_space, arrays)

    @property
    def environments(self) -> list[Any]:
        """The gymnasium environments."""
        return self.copies.environments

    @property
    def has_masks(self) -> bool:
        """Whether observations carry an action mask; known before the first reset where environments have a method."""
        return self.copies.has_masks

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode everywhere; with a seed, environment i gets a stream of its own derived from it."""
        self.copies.reset(self.seeds.of(seed, self.num_envs))
        return self._records.first(self.copies.has_masks)

    def step(self, action: Tensor) -> EnvStep:
        ended = self.copies.step(self._decode(action))
        step = self._records.step(ended, self.copies.has_masks)
        return replace(step, infos=list(self.copies.infos)) if self.copies.infos else step

    def keep_infos(self, keep: bool) -> None:
        """Whether steps carry `infos` from now on."""
        self.copies.keep_infos(keep)

    def reset_infos(self) -> list[dict[str, Any]]:
        """What each environment said in its last reset."""
        return [dict(info) for info in self.copies.reset_infos]

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The classes of the wrappers of each environment; see `wrappers_of`."""
        return [wrappers_of(self.environments[i]) for i in chosen(indices, self.num_envs)]

    def standing(self) -> Any:
        """What changes when the environments are moved; see `standing_of`."""
        return self.copies.standing()

    def get_state(self) -> dict[str, Any]:
        """Where the environments stand, as tensors and JSON scalars; raises as `Copies.get_state`."""
        return state_of(self.copies.get_state(), self.has_masks)

    def set_state(self, state: Any) -> None:
        """Put back what `get_state` gave; raises as `Copies.set_state`."""
        self.copies.set_state(states_in(state, self.num_envs), masks_in(state))

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """The attribute `name` of the environments, looked up through their wrappers."""
        return [read(self.environments[i], name) for i in chosen(indices, self.num_envs)]

    def set_attr(self, name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute where it is defined, through the wrappers."""
        for i in chosen(indices, self.num_envs):
            write(self.environments[i], name, value)

    def env_method(self, name: str, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        """Call a method of the environments; the answers in the order of `indices`."""
        return [call_of(self.environments[i], name, args, kwargs) for i in chosen(indices, self.num_envs)]

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        """`work(environments, items)`, which answers in order; whatever the environments were in the middle of is lost."""
        return self.copies.apply(work, items)

    def close(self) -> None:
        self.copies.close()
