"""The vector environment that steps copies of a gymnasium environment one after the other, where it was made."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import (
    LARGEST_INT,
    USUAL,
    Environment,
    Indices,
    call_of,
    hint_for,
    read,
    success,
    wrappers_of,
    write,
)
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule
from rlsdk.environments.adapters.observations import (
    ActionRows,
    Array,
    Arrays,
    ObservationBatcher,
    rows_of,
    tensors_of,
)
from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.vector.connected import (
    Ended,
    ItemT,
    Options,
    ResultT,
    SteppedVector,
    Work,
    count_reset,
    fingerprint,
    masks_of_all,
    require_alike,
    require_separate,
    seed_spaces,
)
from rlsdk.environments.vector.faults import EVERYWHERE, LATE, Faults, InfoEntries, StepResult
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, RlsdkError, fitting, raise_stop, raised, shown
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.files import LastPrepared
from rlsdk.spaces import Space

StepOfRow = Callable[[int], EnvStep | None]
"""The result of `rlsdk.interfaces.StepsInPlace.step_in_place`."""
SUCCESS = "is_success"
LARGEST = 1e38
"""If the absolute sum of the rewards of a step reaches this number, each reward is checked."""


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
        self.environments: list[Environment] = list(environments)
        numbers = range(count if count > 1 else 0) if numbers is None else numbers
        self._faults = Faults(name, numbers)
        require_separate(self.environments, name)
        require_alike(self.environments, (observation_space, action_space), name)
        first = numbers[0] if numbers else 0
        self._batcher, self._rule = ObservationBatcher(observation_space, first=first), MaskRule(action_space, first)
        self._methods = masks_of_all(self.environments, name, numbers or range(1)) if self._rule.size else None
        self.has_masks = self._methods is not None
        """Whether observations have action masks. Before the first reset, masks in `info` are not known yet."""
        self._action_spaces = [environment.action_space for environment in environments]
        self._plain, self._copied = self._batcher.plain, self._batcher.copied
        self._is_float = bool(self._copied) and self._copied[0].kind == "f"
        shape, dtype = self._plain
        # every step and reset writes observations to new arrays, so that their records need no copy
        self._allocate: Callable[[], Arrays] = partial(self._batcher.allocate, count)
        if shape is not None:
            self._allocate = partial(np.empty, (count, *shape), dtype)
        self._seen = self._batcher.allocate(count, np.zeros)
        self._mask = np.zeros((count, self._rule.size), np.bool_)
        self._steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._returns = [0.0] * count
        self._clock, self._began = 0, [0] * count
        self._bounds_checked = False
        self.infos: list[dict[str, object]] = []
        """The `info` of each environment's last step; empty unless `keep_infos(True)` was called."""
        self.entries = InfoEntries((), count)
        """The entries of the last step's infos that `select_info` declared."""
        self._reset_infos: list[Mapping[str, object]] = [{}] * count
        self._prepared: LastPrepared[tuple[StepOfRow]] = LastPrepared()

    def episode_step(self, i: int) -> int:
        """The number of the next step of environment `i` in its episode, counted from 1."""
        return self._clock - self._began[i] + 1

    # --- stepping ----------------------------------------------------------------------------------------------------

    def step(self, action: Tensor) -> EnvStep:
        rewards, ended = self._advance(self.decode.rows(action), self._allocate())
        return self._record(np.array(rewards, np.float32), ended)

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
        rewards, ended = self._advance(actions, features)
        reward[:] = rewards
        if mask is not None:
            mask[:] = self._mask
        return ended

    def step_in_place(self, observation: Observation, action: Tensor, reward: Tensor) -> StepOfRow | None:
        """Prepare steps from `action` [T, B, ..] to `observation` [T + 1, B, ..]; see `rlsdk.interfaces.StepsInPlace`."""
        decode, features, mask = self.decode, observation.features, observation.action_mask
        if self.keeps_infos or self.info_names or decode.parts or (mask is not None) != self.has_masks:
            return None
        seen = self._seen
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
        decode, storage = self.decode, (features, mask, action, reward)
        seen, taken, rewards = (list(column.numpy()) for column in (features, action.detach(), reward))
        masks = [None] * len(seen) if mask is None else list(mask.numpy())

        def step(t: int, alive: object = storage) -> EnvStep | None:
            ended = self.step_into(decode.decoded(taken[t]), seen[t + 1], rewards[t], masks[t + 1])
            return None if ended is None else self._record(rewards[t].copy(), ended)

        return step

    def _record(self, reward: NDArray[np.float32], ended: Ended | None) -> EnvStep:
        """The record of the last step."""
        step = self.record(self._observation, reward, () if ended is None else ((0, ended),))
        if self.keeps_infos:
            step = replace(step, infos=list(self.infos))
        return replace(step, info=self.entries.tensors()) if self.info_names else step

    def _observation(self, is_first: Tensor) -> Observation:
        """The observation after the last step or reset, with `is_first` bool [B]."""
        seen = self._seen  # for a single array, the call of `tensors_of` is saved
        features = torch.from_numpy(seen) if type(seen) is np.ndarray else tensors_of(seen)
        return Observation(features, is_first, torch.from_numpy(self._mask.copy()) if self.has_masks else None)

    def _advance(self, actions: ActionRows, target: Arrays) -> tuple[list[float], Ended | None]:
        """Step every environment with its own action, and reset those whose episode ended. Returns (rewards, these episodes).

        Observations are written to `target` [B, ..].

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        has_masks, rewards, endings = self.has_masks, list[float](), dict[int, tuple[bool, bool, dict[str, object]]]()
        shape, copied = self._plain[0], self._copied
        self._seen = target
        for i, step in enumerate(self._steps):
            result = None
            try:
                result = seen, reward, terminated, truncated, info = step(actions[i])
            except BaseException as error:  # an environment that calls sys.exit must not end a training in silence
                self._faults.explain_step(i, result, actions[i], error)
            kinds = type(reward), type(terminated), type(truncated), type(info)
            if kinds not in USUAL or (type(reward) is int and abs(reward) > LARGEST_INT):
                reward, terminated, truncated = self._faults.checked(i, self.episode_step(i), result)
            rewards.append(float(reward))
            if type(seen) is type(target) is np.ndarray and seen.shape == shape and seen.dtype in copied:
                target[i] = seen  # as `write` does, but without a call per environment
            else:
                self._write(i, seen, "step")
            if terminated or truncated:
                endings[i] = terminated, truncated, info
            if has_masks:
                self._read_mask(i, info)
        if not abs(sum(rewards)) < LARGEST:  # this is also True for NaN
            self._faults.explain_rewards(rewards, actions)
        self._returns = list(map(add, self._returns, rewards))
        self._clock += 1
        if endings:
            return rewards, self._finish(endings)
        self._check("step")
        return rewards, None

    def _finish(self, endings: dict[int, tuple[bool, bool, dict[str, object]]]) -> Ended:
        """Copy the last observations of episodes that ended, and reset their environments.

        `endings`: number of the environment -> (terminated, truncated, info).
        """
        rows, seen = list(endings), self._seen
        self._check("step", masks=False)
        final = seen[rows] if type(seen) is np.ndarray else rows_of(seen, rows)
        ended = Ended(rows, [], [], final, self._final_masks(rows) if self.has_masks else None, [], [], [])
        for i, (terminated, truncated, info) in endings.items():
            length = self._clock - self._began[i]
            ended.terminated.append(bool(terminated))
            ended.truncated.append(bool(truncated))
            ended.returns.append(self._returns[i])
            ended.lengths.append(length)
            if INFO in info and self._rule.size and not self.has_masks:
                self._faults.blame(i, LATE)
            ended.successes.append(self._faults.named(i, length, success, info) if SUCCESS in info else None)
            self._reset(i, None)
        self._check("reset")
        return ended

    def _final_masks(self, rows: list[int]) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self._mask[rows]
        mask[self._rule.without_choice(mask)] = True  # at the end of an episode, a mask may allow no action
        return mask

    def _write(self, i: int, observation: object, call: str) -> None:
        try:
            self._batcher.write(self._seen, i, observation)
        except ObservationError as error:
            self._faults.blame(i, f"{call}: {error}")

    def _read_mask(self, i: int, info: Mapping[str, object]) -> None:
        if self._methods is None and INFO not in info:
            self._faults.blame(i, f"gave an {INFO!r} in its info before, but not now; {EVERYWHERE}")
        try:
            given = info[INFO] if self._methods is None else self._methods[i]()
        except BaseException as error:
            self._faults.blame(i, raised(error, f"{METHOD}()"), error)
        try:
            self._mask[i] = self._rule.row(given)
        except MaskError as error:
            raise MaskError(f"{self._faults.where(i)}: {error}") from None

    def _check(self, call: str, *, masks: bool = True) -> None:
        seen = self._seen
        # if the sum of squares is finite, all numbers are
        if not (self._is_float and type(seen) is np.ndarray and math.isfinite(np.vdot(seen, seen))):
            self._faults.require_valid(self._batcher, seen, call)
        if masks and self.has_masks:
            try:
                self._rule.require_choice(self._mask)
            except MaskError as error:
                raise MaskError(f"environment {self.name!r}, {call}: {error}") from None

    # --- resets ------------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        return self.begin(self.seeds.of(seed, self.num_envs), self.reset_options.take())

    def begin(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> Observation:
        """Start an episode in every environment with its own seed and options; `options` may be empty for none.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        self.reset_seeds = seeds
        self._reset_all(seeds, options)
        return self._observation(self.all_rows)

    def _reset_all(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> None:
        self._seen = self._allocate()
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed, options[i] if options else None)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._faults.warn_outside(self._batcher, self._seen)

    def _reset(self, i: int, seed: int | None, options: Options = None) -> None:
        self._returns[i], self._began[i] = 0.0, self._clock
        more: dict[str, Any] = {} if options is None else {"options": options}  # an environment may take no options
        try:
            if seed is not None:
                seed_spaces(self.environments[i], seed)
            result = self.environments[i].reset(seed=seed, **more)
        except BaseException as error:
            self._faults.blame(i, raised(error, "reset") + hint_for(error), error)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            self._faults.blame(i, f"reset must return (observation, info), info a dict; it returned {shown(result)}")
        seen, (first, self._reset_infos[i]) = self._seen, result
        if self.environments[i].action_space is not self._action_spaces[i]:
            self._action_spaces[i] = self._faults.warn_of_actions(i, self._action_spaces[i], self.environments[i])
        if type(first) is type(seen) is np.ndarray and (first.shape, first.dtype) == self._plain:
            seen[i] = first
        else:
            self._write(i, first, "reset")
        self.has_masks = self.has_masks or bool(self._rule.size and self._methods is None and INFO in result[1])
        if self.has_masks:
            self._read_mask(i, result[1])

    # --- infos, attributes, states -----------------------------------------------------------------------------------

    def keep_infos(self, keep: bool) -> None:
        """Set whether `infos` are recorded at every step. By default they are not, which saves time."""
        super().keep_infos(keep)
        self.infos = [{} for _ in self.environments] if keep else []
        self._choose_steps()

    def select_info(self, names: Sequence[str]) -> None:
        """Record the entries `names` of infos at every step from now on. Without names, steps take no extra time."""
        super().select_info(names)
        self.entries = InfoEntries(names, self.num_envs)
        self._choose_steps()

    def _choose_steps(self) -> None:
        """Choose the functions that step the environments: `step` itself, or a function that also records infos."""
        notes = self.keeps_infos or bool(self.info_names)
        steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if notes else steps

    def _noting(self, i: int, step: Callable[[object], StepResult]) -> Callable[[object], StepResult]:
        def noting(action: object) -> StepResult:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and len(result) == 5 else None
            if not isinstance(info, Mapping):
                return result  # `_advance` raises the error
            if self.keeps_infos:
                self.infos[i] = dict(info)
            if self.info_names:
                self._faults.named(i, self.episode_step(i), self.entries.write, i, info)
            return result

        return noting

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return [dict(info) for info in self._reset_infos]

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The values of the attribute `name` of the environments or of their wrappers."""
        return [read(self.environments[i], name) for i in self.chosen(indices)]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        for i in self.chosen(indices):
            write(self.environments[i], name, value)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        return [call_of(self.environments[i], name, args, kwargs) for i in self.chosen(indices)]

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; see `wrappers_of`."""
        return [wrappers_of(self.environments[i]) for i in self.chosen(indices)]

    def fingerprint(self) -> tuple[Hashable, ...]:
        """A value that changes when the environments are stepped or reset, by this object or by other code."""
        return self._clock, *map(fingerprint, self.environments)

    def read_states(self) -> list[dict[str, object]]:
        """The state of every environment.

        Raises:
            OpaqueValue: an environment has a value whose state cannot be read.
        """
        context = zip(self.environments, self._returns, self._began, strict=True)
        return [
            {"environment": capture(environment), "return": total, "length": self._clock - began}
            for environment, total, began in context
        ]

    def write_states(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore states from `read_states` in environments that were made in the same way. Their episodes continue.

        Raises:
            ArtifactError: a state is damaged, or belongs to other environments.
        """
        self._reset_all([0] * self.num_envs)
        self.has_masks, self._clock = has_masks, 0
        for i, state in enumerate(states):
            with fitting("the file's environments cannot be taken up"):
                restore(self.environments[i], state["environment"])
                self._returns[i], self._began[i] = running_episode(state)

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The result of `work(environments, items)`; running episodes are lost.

        Errors of the work become an EnvironmentFault with the environment's name.
        """
        try:
            return work(self.environments, items)
        except RlsdkError:
            raise
        except BaseException as error:
            raise_stop(error)
            raise EnvironmentFault(f"environment {self.name!r} {raised(error)}{hint_for(error)}") from error

    def close(self) -> None:
        """Close every environment, and then raise EnvironmentFault if the `close` of one of them raised an error."""
        failed: BaseException | None = None
        for environment in self.environments:
            try:
                environment.close()
            except BaseException as error:
                raise_stop(error)
                failed = failed or error
        if failed is not None:
            raise EnvironmentFault(f"environment {self.name!r} {raised(failed, 'close()')}") from failed
