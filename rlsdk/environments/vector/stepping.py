"""Steps copies of an environment one after the other, with numpy arrays as input and output."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import add
from typing import Any, NamedTuple

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
    chosen,
    hint_for,
    read,
    success,
    wrappers_of,
    write,
)
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule
from rlsdk.environments.adapters.observations import (
    ActionRows,
    Arrays,
    ObservationBatcher,
    concatenated,
    rows_of,
    tensors_of,
)
from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.vector.connected import (
    ItemT,
    Options,
    ResultT,
    Work,
    count_reset,
    fingerprint,
    masks_of_all,
    require_alike,
    require_separate,
    seed_spaces,
)
from rlsdk.environments.vector.faults import EVERYWHERE, LATE, Faults, InfoEntries, StepResult
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, fitting, raise_fault, raise_stop, raised, shown
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space

StepOfRow = Callable[[int], EnvStep | None]
"""The result of `rlsdk.interfaces.environment.StepsInPlace.step_in_place`."""
SUCCESS = "is_success"
LARGEST = 1e38
"""If the absolute sum of the rewards of a step reaches this number, each reward is checked."""


class Ended(NamedTuple):
    """The F episodes that ended in one step of some environments, in ascending order of `rows`.

    It has plain values and arrays, as other processes send it.
    """

    rows: list[int]
    terminated: list[bool]
    truncated: list[bool]
    final: Arrays
    """The last observations, [F, ..]."""
    mask: NDArray[np.bool_] | None
    """The masks of the last observations, [F, A]."""
    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]


class StepRecords:
    """Makes the records of the steps of `count` environments."""

    def __init__(self, count: int) -> None:
        self.count = count
        # tensors that are equal at most steps are made once
        self.all, self.none = torch.ones(count, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)

    def step(
        self,
        observe: Callable[[Tensor], Observation],
        reward: NDArray[np.float32],
        parts: Sequence[tuple[int, Ended]] = (),
        valid: Tensor | None = None,
    ) -> EnvStep:
        """The record of a step.

        Args:
            observe: a function that returns the observation, given `is_first` bool [B].
            reward: float32 [B]. The record shares its memory.
            parts: (number of the first environment, its `Ended`) of each group in which episodes ended.
            valid: bool [B], False for rows that start a new episode, although no episode ended in them; None: there are none.
        """
        # this class has no `__getattr__`, with which attributes are read slowly
        none = self.none
        if not parts and valid is None:
            return EnvStep(observe(none), torch.from_numpy(reward), none, none, self.all)
        terminated, truncated = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        episodes: list[Episode] = []
        for first, ended in parts:
            rows = [first + row for row in ended.rows]
            # one by one: a list as the index takes longer for the few episodes that end in a step
            for row, terminates, truncates in zip(rows, ended.terminated, ended.truncated, strict=True):
                terminated[row], truncated[row] = terminates, truncates
            episodes += map(Episode, rows, ended.returns, ended.lengths, ended.successes)
        is_first = torch.from_numpy(terminated | truncated)
        return EnvStep(
            observe(is_first if valid is None else is_first | ~valid),
            torch.from_numpy(reward),
            torch.from_numpy(terminated),
            torch.from_numpy(truncated),
            self.all if valid is None else valid,
            _final([ended for _, ended in parts]) if parts else None,
            tuple(episodes),
        )


def _final(parts: Sequence[Ended]) -> Observation:
    """The last observations of the episodes that ended in some groups of environments."""
    seen, mask, rows = parts[0].final, parts[0].mask, len(parts[0].rows)
    if len(parts) > 1:
        masks = [part.mask for part in parts if part.mask is not None]
        seen, mask = concatenated([part.final for part in parts]), np.concatenate(masks) if masks else None
        rows = sum(len(part.rows) for part in parts)
    later = torch.from_numpy(np.zeros(rows, np.bool_))
    features = torch.from_numpy(seen) if type(seen) is np.ndarray else tensors_of(seen)
    return Observation(features, later, None if mask is None else torch.from_numpy(mask))


class EnvironmentGroup:
    """B gymnasium environments with the same spaces. A step that ends an episode also resets its environment.

    It does for `SyncVectorEnv` what every step needs: classes with `__getattr__` read their attributes slowly.
    """

    def __init__(
        self, environments: Sequence[Environment], spaces: tuple[Space, Space], name: str, numbers: Sequence[int]
    ) -> None:
        """`numbers`: the numbers of the copies, for messages; empty for a single environment."""
        self.environments, self.name, count = list(environments), name, len(environments)
        self._faults = Faults(name, numbers)
        require_separate(self.environments, name)
        require_alike(self.environments, spaces, name)
        first = numbers[0] if numbers else 0
        self._batcher, self._rule = ObservationBatcher(spaces[0], first=first), MaskRule(spaces[1], first)
        self._methods = masks_of_all(self.environments, name, numbers or range(1)) if self._rule.size else None
        self.has_masks = self._methods is not None
        self._action_spaces = [environment.action_space for environment in environments]
        self.plain, self._copied = self._batcher.plain, self._batcher.copied
        self._is_float = bool(self._copied) and self._copied[0].kind == "f"
        shape, dtype = self.plain
        # every step and reset writes observations to new arrays, so that their records need no copy
        self.allocate: Callable[[], Arrays] = partial(self._batcher.allocate, count)
        if shape is not None:
            self.allocate = partial(np.empty, (count, *shape), dtype)
        self.seen = self.allocate()
        """The observations of the last step or reset, [B, ..]."""
        self.mask = np.zeros((count, self._rule.size), np.bool_)
        self._steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._returns = [0.0] * count
        self._clock, self._began = 0, [0] * count
        self._bounds_checked = False
        self.infos: list[dict[str, object]] = []
        """The `info` of each environment's last step; empty unless they are recorded."""
        self.entries = InfoEntries((), count)
        """The declared entries of the last step's infos."""
        self.reset_infos: list[Mapping[str, object]] = [{}] * count
        """The `info` of each environment's last reset."""

    def __len__(self) -> int:
        return len(self.environments)

    def episode_step(self, i: int) -> int:
        """The number of the next step of environment `i` in its episode, counted from 1."""
        return self._clock - self._began[i] + 1

    def observation(self, is_first: Tensor) -> Observation:
        """The observation after the last step or reset, with `is_first` bool [B]."""
        seen = self.seen  # for a single array, the call of `tensors_of` is saved
        features = torch.from_numpy(seen) if type(seen) is np.ndarray else tensors_of(seen)
        return Observation(features, is_first, torch.from_numpy(self.mask.copy()) if self.has_masks else None)

    def step(self, actions: ActionRows, target: Arrays) -> tuple[list[float], Ended | None]:
        """Step every environment with its own action, and reset those whose episode ended. Returns (rewards, these episodes).

        Observations are written to `target` [B, ..].

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        # annotations, because calls of `list[float]` take long
        rewards: list[float] = []
        endings: dict[int, tuple[bool, bool, dict[str, object]]] = {}
        has_masks = self.has_masks
        shape, copied = self.plain[0], self._copied
        self.seen = target
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
        rows, seen = list(endings), self.seen
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
        mask: NDArray[np.bool_] = self.mask[rows]
        mask[self._rule.without_choice(mask)] = True  # at the end of an episode, a mask may allow no action
        return mask

    def _write(self, i: int, observation: object, call: str) -> None:
        try:
            self._batcher.write(self.seen, i, observation)
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
            self.mask[i] = self._rule.row(given)
        except MaskError as error:
            raise MaskError(f"{self._faults.where(i)}: {error}") from None

    def _check(self, call: str, *, masks: bool = True) -> None:
        seen = self.seen
        # if the sum of squares is finite, all numbers are
        if not (self._is_float and type(seen) is np.ndarray and math.isfinite(np.vdot(seen, seen))):
            self._faults.require_valid(self._batcher, seen, call)
        if masks and self.has_masks:
            try:
                self._rule.require_choice(self.mask)
            except MaskError as error:
                raise MaskError(f"environment {self.name!r}, {call}: {error}") from None

    def reset(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> None:
        """Start an episode in every environment. `options`: those of each environment's `reset`, or empty for none.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        self.seen = self.allocate()
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed, options[i] if options else None)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._faults.warn_outside(self._batcher, self.seen)

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
        seen, (first, self.reset_infos[i]) = self.seen, result
        if self.environments[i].action_space is not self._action_spaces[i]:
            self._action_spaces[i] = self._faults.warn_of_actions(i, self._action_spaces[i], self.environments[i])
        if type(first) is type(seen) is np.ndarray and (first.shape, first.dtype) == self.plain:
            seen[i] = first
        else:
            self._write(i, first, "reset")
        self.has_masks = self.has_masks or bool(self._rule.size and self._methods is None and INFO in result[1])
        if self.has_masks:
            self._read_mask(i, result[1])

    def record_infos(self, *, keep: bool, names: Sequence[str]) -> None:
        """Set whether all `infos` are recorded at every step, and which `entries`. Without both, steps take no extra time."""
        self.infos = [{} for _ in self.environments] if keep else []
        self.entries = InfoEntries(names, len(self))
        steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if keep or names else steps

    def _noting(self, i: int, step: Callable[[object], StepResult]) -> Callable[[object], StepResult]:
        def noting(action: object) -> StepResult:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and len(result) == 5 else None
            if not isinstance(info, Mapping):
                return result  # `step` raises the error
            if self.infos:
                self.infos[i] = dict(info)
            if self.entries.names:
                self._faults.named(i, self.episode_step(i), self.entries.write, i, info)
            return result

        return noting

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The values of the attribute `name` of the environments or of their wrappers."""
        return [read(self.environments[i], name) for i in chosen(indices, len(self))]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        for i in chosen(indices, len(self)):
            write(self.environments[i], name, value)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        return [call_of(self.environments[i], name, args, kwargs) for i in chosen(indices, len(self))]

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; see `wrappers_of`."""
        return [wrappers_of(self.environments[i]) for i in chosen(indices, len(self))]

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
        self.reset([0] * len(self))
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
        except BaseException as error:
            raise_fault(error, f"environment {self.name!r}", ending=hint_for(error))

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
