"""A vector environment whose environments are stepped in this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.attributes import Environment, Indices, call_of, chosen, read, wrappers_of, write
from rlsdk.environments.states import masks_in, state_of, states_in
from rlsdk.environments.vector.connected import SteppedVector
from rlsdk.environments.vector.environment_group import EnvironmentGroup
from rlsdk.environments.vector.item_groups import ItemT, ResultT, Work
from rlsdk.environments.vector.step_arrays import StepArrays
from rlsdk.environments.vector.step_records import StepRecords
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.last_prepared import LastPrepared
from rlsdk.spaces import Space

StepOfRow = Callable[[int], EnvStep | None]
"""The result of `rlsdk.interfaces.StepsInPlace.step_in_place`."""


class SyncVectorEnv(SteppedVector):
    """B gymnasium environments that are stepped one after the other. A step that ends an episode resets its environment."""

    def __init__(
        self,
        environments: Sequence[Environment],
        observation_space: Space,
        action_space: Space,
        *,
        name: str,
        seed: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """`numbers`: the numbers of the copies, for messages; by default 0, 1, ... for several copies, else empty."""
        super().__init__(observation_space, action_space, name, seed)
        self.num_envs = count = len(environments)
        arrays = StepArrays(observation_space, action_space, count, np.zeros)
        numbers = range(count if count > 1 else 0) if numbers is None else numbers
        self.group = EnvironmentGroup(environments, arrays, name, numbers)
        self.group.renew()
        self.environments = self.group.environments
        self._decode, self._records = ActionDecoder(action_space), StepRecords(arrays, reused=False)
        self._prepared: LastPrepared[tuple[StepOfRow]] = LastPrepared()
        seen = torch.from_numpy(arrays.observation) if isinstance(arrays.observation, np.ndarray) else None
        self._plain = None if seen is None else (seen.shape, seen.dtype)
        """The shape and dtype of a row that can be written in place; None: nested observations cannot."""

    @property
    def has_masks(self) -> bool:
        """Whether observations have action masks. Before the first reset, masks in `info` are not known yet."""
        return self.group.has_masks

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        self.reset_seeds = self.seeds.of(seed, self.num_envs)
        self.group.reset(self.reset_seeds, self.reset_options.take())
        return self._records.first(self.group.has_masks)

    def step(self, action: Tensor) -> EnvStep:
        ended = self.group.step(self._decode.rows(action))
        step = self._records.step(ended, self.group.has_masks)
        if self.keeps_infos:
            step = replace(step, infos=list(self.group.infos))
        return replace(step, info=self.group.entries.tensors()) if self.info_names else step

    def step_in_place(self, observation: Observation, action: Tensor, reward: Tensor) -> StepOfRow | None:
        """Prepare steps from `action` [T, B, ..] to `observation` [T + 1, B, ..]; see `rlsdk.interfaces.StepsInPlace`."""
        decode, features, mask = self._decode, observation.features, observation.action_mask
        if self.keeps_infos or self.info_names or decode.parts or (mask is not None) != self.group.has_masks:
            return None
        if not isinstance(features, Tensor) or not features.is_cpu or not action.is_cpu:
            return None
        if (features.shape[1:], features.dtype) != self._plain or action.shape[2:] != decode.shape:
            return None
        storage = features, mask, action, reward
        found = self._prepared.find(*storage) or self._prepared.remember((self._writing(*storage),), *storage)
        return found[0]

    def _writing(self, features: Tensor, mask: Tensor | None, action: Tensor, reward: Tensor) -> StepOfRow:
        """Return a function of t that makes step t with `action[t]`, and writes to the other tensors."""
        group, decode, storage = self.group, self._decode, (features, mask, action, reward)
        seen, taken, rewards = (list(column.numpy()) for column in (features, action.detach(), reward))
        masks = None if mask is None else list(mask.numpy())

        def step(t: int, alive: object = storage) -> EnvStep | None:
            ended = group.step(decode.decoded(taken[t]), seen[t + 1])
            rewards[t][:] = group.arrays.reward
            if masks is not None:
                masks[t + 1][:] = group.arrays.mask
            return None if ended is None else self._records.step(ended, group.has_masks)

        return step

    def keep_infos(self, keep: bool) -> None:
        super().keep_infos(keep)
        self.group.keep_infos(keep)

    def select_info(self, names: Sequence[str]) -> None:
        super().select_info(names)
        self.group.select_info(names)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [dict(info) for info in self.group.reset_infos]

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; see `wrappers_of`."""
        return [wrappers_of(self.group.environments[i]) for i in chosen(indices, self.num_envs)]

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset."""
        return self.group.fingerprint()

    def get_state(self) -> dict[str, object]:
        """The state of the environments, as tensors and JSON scalars. Raises as `EnvironmentGroup.get_state`."""
        return state_of(self.group.get_state(), self.has_masks)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`. Raises as `EnvironmentGroup.set_state`."""
        self.group.set_state(states_in(state, self.num_envs), masks_in(state))

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The values of the attribute `name` of the environments or of their wrappers."""
        return [read(self.group.environments[i], name) for i in chosen(indices, self.num_envs)]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        for i in chosen(indices, self.num_envs):
            write(self.group.environments[i], name, value)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        return [call_of(self.group.environments[i], name, args, kwargs) for i in chosen(indices, self.num_envs)]

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, in order. Running episodes are lost."""
        return self.group.apply(work, items)

    def close(self) -> None:
        self.group.close()
