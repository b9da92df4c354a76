"""Vector environments that are stepped in this process; recording, devices, and episodes that do not end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.adapters.checks import LARGEST_INT, USUAL, Environment, named, success, time_limit
from rlsdk.environments.adapters.observations import ActionDecoder
from rlsdk.environments.states import masks_in, read_state, state_of, states_in
from rlsdk.environments.vector.connected import Options, SteppedVector, VectorWrapper, has_members, seed_spaces
from rlsdk.environments.vector.stepping import (
    EnvironmentGroup,
    Faults,
    ItemT,
    ResultT,
    StepArrays,
    StepRecords,
    StepResult,
    Work,
)
from rlsdk.errors import EnvironmentFault
from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.runtime.files import LastPrepared
from rlsdk.runtime.process import is_same_device
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors

T = TypeVar("T")


MOVED = ("observation", "reward", "terminated", "truncated", "valid", "final_observation", "info")
"""The fields of a step whose tensors `OnDevice` moves. Infos and episodes are Python objects, for callbacks."""
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
        self.environments = self.group.environments
        self.fingerprint, self.wrappers = self.group.fingerprint, self.group.wrappers
        self.get_attr, self.set_attr, self.env_method = self.group.get_attr, self.group.set_attr, self.group.env_method
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
        return self.begin(self.seeds.of(seed, self.num_envs), self.reset_options.take())

    def begin(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> Observation:
        """Start an episode in every environment with its own seed and options."""
        self.reset_seeds = seeds
        self.group.reset(seeds, options)
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

    def get_state(self) -> dict[str, object]:
        """The state of the environments, as tensors and JSON scalars. Raises as `EnvironmentGroup.get_state`."""
        return state_of(self.group.get_state(), self.has_masks)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`. Raises as `EnvironmentGroup.set_state`."""
        self.group.set_state(states_in(state, self.num_envs), masks_in(state))

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, in order. Running episodes are lost."""
        return self.group.apply(work, items)

    def close(self) -> None:
        self.group.close()


def device_of(env: object) -> str:
    """The device of the tensors of a vector environment; `cpu` for anything else."""
    return str(getattr(env, "device", "cpu")) if has_members(env) else "cpu"


def on_device(env: VectorEnv, device: str) -> VectorEnv:
    """The environment with its tensors on `device`; unchanged if they are there anyway."""
    own = device_of(env)
    return env if is_same_device(own, device) else OnDevice(env, own, device)


class OnDevice(VectorWrapper):
    """Wraps a vector environment on the device `own`: moves the tensors of its records to `device`, and actions back."""

    def __init__(self, env: VectorEnv, own: str, device: str) -> None:
        super().__init__(env)
        self.own, self.device = own, device

    def _move(self, value: T) -> T:
        return map_tensors(lambda leaf: leaf.to(self.device), value)

    def reset(self, seed: int | None = None) -> Observation:
        return self._move(self.env.reset(seed))

    def step(self, action: Any) -> EnvStep:
        step = self.env.step(map_tensors(lambda leaf: leaf.to(self.own), action))
        moved: dict[str, Any] = {name: self._move(getattr(step, name)) for name in MOVED}
        return replace(step, **moved)

    def get_state(self) -> object:
        """The state of the environments. Raises OpaqueValue if it cannot be read."""
        return read_state(self.env)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`."""
        cast("Any", self.env).set_state(state)


LONG = 30_000
"""Steps of an episode after which there is a warning. The longest games of Atari have 27,000."""
MOST = 1_000_000
"""Steps of an episode after which there is an error, unless the environment has a time limit above it."""
UNHEARD = 5_000
"""Steps of each environment without the end of an episode, after which a training gives a hint."""


def require_end(env: object, name: str, steps: int) -> int:
    """Check that an episode of `steps` steps may still end; return the number of steps after which to check it again.

    Warns from `LONG` steps on, if the environment states no time limit.

    Raises:
        EnvironmentFault: the episode has more than `MOST` steps, and more than the time limit of the environment.
    """
    if steps < LONG:
        return LONG
    known = time_limit(env)
    limit = max(MOST, known or 0)
    shown = limit if steps > limit else LONG
    message = (
        f"environment {name}: no episode ended in {shown:,} steps, and whole episodes are played; give it a time limit, such as"
        " gymnasium.wrappers.TimeLimit(env, 1000) or --env-kwargs max_episode_steps=1000"
    )
    if steps > limit:
        raise EnvironmentFault(f"{message}; a limit above {limit:,} allows longer episodes")
    if known is None:
        warnings.warn(f"{message}; without one this ends after {limit:,} steps", stacklevel=3)
    return limit + 1


class Waiting:
    """Watches environments that are stepped together until episodes end, with `require_end`.

    Results of episodes that end do not depend on it.
    """

    def __init__(self, env: VectorEnv) -> None:
        self.env, self.name = env, repr(getattr(env, "name", type(env).__name__))
        self._clock, self._began, self._due = 0, [0] * env.num_envs, LONG

    def stepped(self, episodes: Sequence[Episode]) -> None:
        """Count a step in which `episodes` ended. Raises as `require_end`."""
        self._clock += 1
        for episode in episodes:
            self._began[episode.env] = self._clock
        if self._clock >= self._due:
            began = min(self._began)
            self._due = began + require_end(self.env, self.name, self._clock - began)


class EpisodeEnv:
    """A gymnasium environment that plays episodes from given seeds, for a plan that steps environments itself.

    Its results and the length of episodes are checked as those of environments that are stepped together.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment, self._step = environment, environment.step
        self.total, self.length, self._due = 0.0, 0, LONG

    @property
    def name(self) -> str:
        """The name of the environment for messages."""
        return named(self.environment)

    def begin(self, seed: int) -> object:
        """Reset the environment and return the first observation."""
        self.total, self.length, self._due = 0.0, 0, LONG
        # a wrapper that samples actions draws from the space's own generator
        seed_spaces(self.environment, seed)
        observation, _ = self.environment.reset(seed=seed)
        return observation

    def step(self, action: object) -> StepResult:
        """Return (observation, reward, terminated, truncated, info). The observation is not checked.

        Raises:
            EnvironmentFault: another value cannot be used, or the episode does not end; see `require_end`.
        """
        result = _, reward, terminated, truncated, info = self._step(action)
        self.length += 1
        kinds = type(reward), type(terminated), type(truncated), type(info)
        if kinds not in USUAL or (type(reward) is int and abs(reward) > LARGEST_INT):
            reward, terminated, truncated = Faults(self.name, ()).checked(0, self.length, result)
            result = result[0], reward, terminated, truncated, info
        self.total += float(reward)
        if self.length >= self._due and not (terminated or truncated):
            self._due = require_end(self.environment, self.name, self.length)
        return result

    def episode(self, info: Mapping[str, object]) -> Episode:
        """The episode that has ended, given the `info` of its last step.

        Raises:
            EnvironmentFault: its return is NaN or infinite, or `info` has an `is_success` that is no bool or number.
        """
        if not math.isfinite(self.total):
            raise EnvironmentFault(
                f"environment {self.name}: an episode has the return {self.total}; it must be finite"
            )
        return Episode(0, self.total, self.length, Faults(self.name, ()).named(0, self.length, success, info))


def hint_of_silence(env: Any, steps: int, *, logs_episodes: bool) -> None:
    """Warn that no episode has ended in `steps` steps of a training, unless the environment states a later time limit."""
    known = None if env is None else time_limit(env)
    if known is not None and known >= steps:
        return
    nothing = "; this algorithm logs after whole episodes, so nothing is logged" if logs_episodes else ""
    warnings.warn(
        f"no episode has ended in the first {steps:,} steps of each environment, so the log has no rollout/ep_rew_mean"
        f"{nothing}; if episodes never end, give the environment a time limit, such as gymnasium.wrappers.TimeLimit(env, 1000)",
        stacklevel=2,
    )
