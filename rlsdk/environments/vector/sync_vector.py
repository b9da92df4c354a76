"""The vector environment that steps copies of a gymnasium environment one after the other, where it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import Environment
from rlsdk.environments.adapters.observations import ActionRows, Array, Arrays
from rlsdk.environments.vector.connected import ItemT, Options, ResultT, SteppedVector, Work
from rlsdk.environments.vector.stepping import Ended, EnvironmentGroup, StepRecords
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.files import LastPrepared
from rlsdk.spaces import Space

StepOfRow = Callable[[int], EnvStep | None]
"""The result of `rlsdk.interfaces.environment.StepsInPlace.step_in_place`."""


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
        numbers = range(count if count > 1 else 0) if numbers is None else numbers
        self.group = group = EnvironmentGroup(environments, (observation_space, action_space), name, numbers)
        self.environments, self.fingerprint, self.wrappers = group.environments, group.fingerprint, group.wrappers
        self.get_attr, self.set_attr, self.env_method = group.get_attr, group.set_attr, group.env_method
        self.records = StepRecords(count)
        self._prepared: LastPrepared[tuple[StepOfRow]] = LastPrepared()
        seen = torch.from_numpy(group.seen) if isinstance(group.seen, np.ndarray) else None
        self._plain = None if seen is None else (seen.shape, seen.dtype)
        """The shape and dtype of a row that can be written in place; None: nested observations cannot."""

    @property
    def has_masks(self) -> bool:
        """Whether observations have action masks. Before the first reset, masks in `info` are not known yet."""
        return self.group.has_masks

    @property
    def infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last step; empty unless `keep_infos(True)` was called."""
        return self.group.infos

    @property
    def entries(self) -> NDArray[np.float32]:
        """The entries of the last step's infos that `select_info` declared, [number of entries, B]."""
        return self.group.entries.values

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        return self.begin(self.seeds.of(seed, self.num_envs), self.reset_options.take())

    def begin(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> Observation:
        """Start an episode in every environment with its own seed and options; `options` may be empty for none.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        self.reset_seeds = seeds
        self.group.reset(seeds, options)
        return self.group.observation(self.records.all)

    def step(self, action: Tensor) -> EnvStep:
        group = self.group
        rewards, ended = group.step(self.decode.rows(action), group.allocate())
        parts = () if ended is None else ((0, ended),)
        step = self.records.step(group.observation, np.array(rewards, np.float32), parts)
        if self.keeps_infos:
            step = replace(step, infos=list(group.infos))
        return replace(step, info=group.entries.tensors()) if self.info_names else step

    def step_into(self, actions: ActionRows, features: Arrays, reward: Array, mask: Array | None) -> Ended | None:
        """Make a step that writes observations, rewards and masks to arrays of the caller.

        Args:
            actions: one action per environment, as `decode` returns them.
            features: arrays [B, ..] in the dtypes of the space, nested as the space.
            reward: float32 [B].
            mask: bool [B, A]; None: there are no masks.

        Returns:
            The episodes that ended; None if none ended.
        """
        rewards, ended = self.group.step(actions, features)
        reward[:] = rewards
        if mask is not None:
            mask[:] = self.group.mask
        return ended

    def step_in_place(self, observation: Observation, action: Tensor, reward: Tensor) -> StepOfRow | None:
        """Prepare steps from `action` [T, B, ..] to `observation` [T + 1, B, ..]; see `StepsInPlace` in `rlsdk.interfaces`."""
        decode, features, mask = self.decode, observation.features, observation.action_mask
        if self.keeps_infos or self.info_names or decode.parts or (mask is not None) != self.group.has_masks:
            return None
        seen = self.group.seen
        if (
            not isinstance(features, Tensor)
            or not features.is_cpu
            or not action.is_cpu
            or isinstance(seen, dict | tuple)
        ):
            return None
        if (features.shape[1:], features.dtype) != (seen.shape, torch.from_numpy(seen).dtype):
            return None
        if action.shape[2:] != decode.shape:
            return None
        storage = features, mask, action, reward
        found = self._prepared.find(*storage) or self._prepared.remember((self._writing(*storage),), *storage)
        return found[0]

    def _writing(self, features: Tensor, mask: Tensor | None, action: Tensor, reward: Tensor) -> StepOfRow:
        """Return a function of t that makes step t with `action[t]`, and writes to the other tensors."""
        group, decode, records, storage = self.group, self.decode, self.records, (features, mask, action, reward)
        seen, taken, rewards = (list(column.numpy()) for column in (features, action.detach(), reward))
        masks = None if mask is None else list(mask.numpy())

        # as `step_into`, without a call of it
        def step(t: int, alive: object = storage) -> EnvStep | None:
            rewards[t][:], ended = group.step(decode.decoded(taken[t]), seen[t + 1])
            if masks is not None:
                masks[t + 1][:] = group.mask
            return None if ended is None else records.step(group.observation, rewards[t].copy(), ((0, ended),))

        return step

    def keep_infos(self, keep: bool) -> None:
        super().keep_infos(keep)
        self.group.record_infos(keep=keep, names=self.info_names)

    def select_info(self, names: Sequence[str]) -> None:
        super().select_info(names)
        self.group.record_infos(keep=self.keeps_infos, names=self.info_names)

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [dict(info) for info in self.group.reset_infos]

    def read_states(self) -> list[dict[str, object]]:
        """The state of every environment, in order. Raises as `EnvironmentGroup.read_states`."""
        return self.group.read_states()

    def write_states(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore states from `read_states`. Raises as `EnvironmentGroup.write_states`."""
        self.group.write_states(states, has_masks)

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The result of `work(environments, items)`; running episodes are lost. Raises as `EnvironmentGroup.map`."""
        return self.group.map(work, items)

    def close(self) -> None:
        self.group.close()
