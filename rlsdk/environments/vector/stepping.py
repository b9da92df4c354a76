"""Steps copies of an environment one after the other, with numpy arrays as input and output, and makes records of the
steps.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, NoReturn, SupportsFloat, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import (
    FLOAT32_MAX,
    LARGEST_INT,
    STEP,
    USUAL,
    Environment,
    Indices,
    call_of,
    chosen,
    entry,
    flag,
    hint_for,
    number,
    read,
    require_info,
    success,
    wrappers_of,
    write,
)
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule
from rlsdk.environments.adapters.observations import (
    ActionRows,
    Allocate,
    Array,
    Arrays,
    GymSpace,
    ObservationBatcher,
    concatenated,
    rows_of,
    tensors_of,
)
from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.vector.connected import (
    Options,
    count_reset,
    fingerprint,
    masks_of_all,
    require_alike,
    require_separate,
    seed_spaces,
)
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, RlsdkError, fitting, raise_stop, raised, shown
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


StepResult: TypeAlias = "tuple[object, SupportsFloat, bool, bool, dict[str, object]]"
"""The type that `step` declares as its result. It is checked, because environments may return anything."""
SUCCESS = "is_success"
LARGEST = 1e38
"""If the absolute sum of the rewards of a step reaches this number, each reward is checked."""


class EnvironmentGroup:
    """B gymnasium environments with the same spaces. A step that ends an episode also resets its environment.

    The same code runs in this process (`SyncVectorEnv`) and in other processes (`VectorWorker`).
    """

    def __init__(
        self,
        environments: Sequence[Environment],
        arrays: StepArrays,
        name: str,
        numbers: Sequence[int] = (),
    ) -> None:
        """`numbers`: the numbers of the copies, for messages; empty for a single environment."""
        self.environments, self.name, self.arrays = list(environments), name, arrays
        self._faults = Faults(name, numbers)
        require_separate(self.environments, name)
        require_alike(self.environments, arrays.spaces, name)
        observation_space, action_space = arrays.spaces
        first = numbers[0] if numbers else 0
        self.stacker, self.rule = ObservationBatcher(observation_space, first=first), MaskRule(action_space, first)
        self._plain = self.stacker.plain
        self.methods = masks_of_all(self.environments, name, numbers or range(1)) if self.rule.size else None
        self._action_spaces = [environment.action_space for environment in environments]
        self.has_masks = self.methods is not None
        self._copied = self.stacker.copied
        self._is_float = bool(self._copied) and self._copied[0].kind == "f"
        (shape, dtype), count = self._plain, len(self.environments)
        # every step and reset writes observations to new arrays, so that their records need no copy
        self._allocate: Callable[[], Arrays] = partial(self.stacker.allocate, count)
        if shape is not None:
            self._allocate = partial(np.empty, (count, *shape), dtype)
        self._steps: list[Callable[[object], StepResult]] = [environment.step for environment in environments]
        self._returns = [0.0] * len(self.environments)
        self._clock, self._began = 0, [0] * len(self.environments)
        self._flagged = False  # whether an episode ended in the last step
        self._bounds_checked = False
        self.infos: list[dict[str, object]] = []
        """The `info` of each environment's last step; empty unless `keep_infos(True)` was called."""
        self.entries = InfoEntries((), len(environments))
        """The entries of the last step's infos that `select_info` declared."""
        self.reset_infos: list[Mapping[str, object]] = [{} for _ in self.environments]
        """The `info` of each environment's last reset."""

    def __len__(self) -> int:
        return len(self.environments)

    def episode_step(self, i: int) -> int:
        """The number of the next step of environment `i` in its episode, counted from 1."""
        return self._clock - self._began[i] + 1

    def step(self, actions: ActionRows, storage: Array | None = None) -> Ended | None:
        """Step every environment with its own action, reset those whose episode ended, and return these episodes.

        Observations are written to `storage` [B, ..], if it is given.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        arrays, has_masks, rewards, infos = self.arrays, self.has_masks, [], {}
        shape, copied = self._plain[0], self._copied
        target = arrays.observation = self._allocate() if storage is None else storage
        if self._flagged:
            self._flagged = arrays.terminated[:] = arrays.truncated[:] = False
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
                infos[i] = terminated, truncated, info
            if has_masks:
                self._read_mask(i, info)
        if not abs(sum(rewards)) < LARGEST:  # this is also True for NaN
            self._faults.explain_rewards(rewards, actions)
        arrays.reward[:] = rewards
        self._returns = list(map(add, self._returns, rewards))
        self._clock += 1
        if infos:
            return self._finish(infos)
        self._check("step")
        return None

    def _finish(self, endings: dict[int, tuple[bool, bool, dict[str, object]]]) -> Ended:
        """Copy the last observations of episodes that ended, and reset their environments.

        `endings`: number of the environment -> (terminated, truncated, info).
        """
        rows, arrays, seen = list(endings), self.arrays, self.arrays.observation
        self._flagged = True
        self._check("step", masks=False)
        final = seen[rows] if type(seen) is np.ndarray else rows_of(seen, rows)
        ended = Ended(rows, final, self._final_masks(rows) if self.has_masks else None, [], [], [])
        for i, (terminated, truncated, info) in endings.items():
            arrays.terminated[i], arrays.truncated[i] = terminated, truncated
            ended.returns.append(self._returns[i])
            ended.lengths.append(self._clock - self._began[i])
            if INFO in info and self.rule.size and not self.has_masks:
                self._faults.blame(i, LATE)
            ended.successes.append(self._faults.named(i, ended.lengths[-1], success, info) if SUCCESS in info else None)
            self._reset(i, None)
        self._check("reset")
        return ended

    def _final_masks(self, rows: list[int]) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.arrays.mask[rows]
        mask[self.rule.without_choice(mask)] = True  # at the end of an episode, a mask may allow no action
        return mask

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
        seen, (first, self.reset_infos[i]) = self.arrays.observation, result
        if self.environments[i].action_space is not self._action_spaces[i]:
            self._action_spaces[i] = self._faults.warn_of_actions(i, self._action_spaces[i], self.environments[i])
        if type(first) is type(seen) is np.ndarray and (first.shape, first.dtype) == self._plain:
            seen[i] = first
        else:
            self._write(i, first, "reset")
        self.has_masks = self.has_masks or bool(self.rule.size and self.methods is None and INFO in result[1])
        if self.has_masks:
            self._read_mask(i, result[1])

    def _write(self, i: int, observation: object, call: str) -> None:
        try:
            self.stacker.write(self.arrays.observation, i, observation)
        except ObservationError as error:
            self._faults.blame(i, f"{call}: {error}")

    def _read_mask(self, i: int, info: Mapping[str, object]) -> None:
        if self.methods is None and INFO not in info:
            self._faults.blame(i, f"gave an {INFO!r} in its info before, but not now; {EVERYWHERE}")
        try:
            given = info[INFO] if self.methods is None else self.methods[i]()
        except BaseException as error:
            self._faults.blame(i, raised(error, f"{METHOD}()"), error)
        try:
            self.arrays.mask[i] = self.rule.row(given)
        except MaskError as error:
            raise MaskError(f"{self._faults.where(i)}: {error}") from None

    def _check(self, call: str, *, masks: bool = True) -> None:
        seen = self.arrays.observation
        # if the sum of squares is finite, all numbers are
        if not (self._is_float and type(seen) is np.ndarray and math.isfinite(np.vdot(seen, seen))):
            self._faults.require_valid(self.stacker, seen, call)
        if masks and self.has_masks:
            self._check_masks(call)

    def _check_masks(self, call: str) -> None:
        try:
            self.rule.require_choice(self.arrays.mask)
        except MaskError as error:
            raise MaskError(f"environment {self.name!r}, {call}: {error}") from None

    def reset(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> None:
        """Start an episode in every environment. `options`: those of each environment's `reset`, or empty for none.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        self.arrays.observation = self._allocate()
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed, options[i] if options else None)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._faults.warn_outside(self.stacker, self.arrays.observation)

    def write_to(self, arrays: StepArrays) -> None:
        """Let all steps and resets write to these arrays from now on, which other processes read."""
        self.arrays, self._allocate = arrays, lambda: arrays.observation

    @property
    def keeps_infos(self) -> bool:
        """Whether `infos` are recorded at every step."""
        return bool(self.infos)

    def keep_infos(self, keep: bool) -> None:
        """Set whether `infos` are recorded at every step. By default they are not, which saves time."""
        self.infos = [{} for _ in self.environments] if keep else []
        self._choose_steps()

    def select_info(self, names: Sequence[str]) -> None:
        """Record the entries `names` of infos at every step from now on. Without names, steps take no extra time."""
        self.entries = InfoEntries(names, len(self.environments))
        self._choose_steps()

    def _choose_steps(self) -> None:
        """Choose the functions that step the environments: `step` itself, or a function that also records infos."""
        notes = bool(self.infos or self.entries.names)
        steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if notes else steps

    def _noting(self, i: int, step: Callable[[object], StepResult]) -> Callable[[object], StepResult]:
        def noting(action: object) -> StepResult:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and len(result) == 5 else None
            if not isinstance(info, Mapping):
                return result  # `EnvironmentGroup.step` raises the error
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

    def get_state(self) -> list[dict[str, object]]:
        """The state of every environment.

        Raises:
            OpaqueValue: an environment has a value whose state cannot be read.
        """
        context = zip(self.environments, self._returns, self._began, strict=True)
        return [
            {"environment": capture(environment), "return": total, "length": self._clock - began}
            for environment, total, began in context
        ]

    def set_state(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore a state from `get_state` in environments that were made in the same way. Their episodes continue.

        Raises:
            ArtifactError: the state is damaged, or belongs to other environments.
        """
        self.reset([0] * len(self.environments))
        self.has_masks, self._clock = has_masks, 0
        for i, state in enumerate(states):
            with fitting("the file's environments cannot be taken up"):
                restore(self.environments[i], state["environment"])
                self._returns[i], self._began[i] = running_episode(state)

    def apply(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The result of `work(environments, items)`. Its errors become an EnvironmentFault with the environment's name."""
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


@dataclass(frozen=True, slots=True)
class Ended:
    """The F episodes that ended in one step, in ascending order of `rows`.

    It has the last observation and mask, the return, the length and the success of each.
    """

    rows: list[int]
    observation: Arrays  # [F, ...]
    mask: NDArray[np.bool_] | None  # [F, A]
    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]


Contents: TypeAlias = "tuple[Arrays, ...]"
"""Observations, rewards, both flags and masks of a step."""


class StepArrays:
    """The arrays into which environments write the results of a step or reset, with one row per environment."""

    def __init__(self, observation_space: Space, action_space: Space, rows: int, make: Allocate) -> None:
        self.observation = ObservationBatcher(observation_space).allocate(rows, make)
        self.spaces = observation_space, action_space
        self.reward = make((rows,), np.dtype(np.float32))
        self.terminated, self.truncated = make((rows,), np.dtype(np.bool_)), make((rows,), np.dtype(np.bool_))
        self.mask = make((rows, MaskRule(action_space).size), np.dtype(np.bool_))

    def part(self, start: int, end: int) -> StepArrays:
        """Views of the rows from `start` to `end`."""
        view = object.__new__(StepArrays)
        view.spaces, view.observation = self.spaces, rows_of(self.observation, slice(start, end))
        view.reward, view.mask = self.reward[start:end], self.mask[start:end]
        view.terminated, view.truncated = self.terminated[start:end], self.truncated[start:end]
        return view

    def contents(self) -> Contents:
        """The arrays, to be sent to the process that joins them."""
        return self.observation, self.reward, self.terminated, self.truncated, self.mask

    def join(self, parts: Sequence[Contents]) -> None:
        """Replace the arrays by the concatenated contents of parts."""
        joined: list[Any] = [concatenated(column) for column in zip(*parts, strict=True)]
        self.observation, self.reward, self.terminated, self.truncated, self.mask = joined


class StepRecords:
    """Converts the arrays of a step to records of tensors.

    `reused`: whether the next step writes to the same memory, so that observations must be copied. Tensors that are equal at
    most steps are made once.
    """

    def __init__(self, arrays: StepArrays, *, reused: bool = True) -> None:
        self.arrays, self.reused = arrays, reused
        count = len(arrays.reward)
        self._first = torch.ones(count, dtype=torch.bool)
        self._none = torch.zeros(count, dtype=torch.bool)
        self.all_valid = torch.ones(count, dtype=torch.bool)

    def _observation(self, is_first: Tensor, has_masks: bool) -> Observation:
        """The observation in the arrays, with `is_first` bool [B]."""
        seen, fresh = self.arrays.observation, self.reused  # for a single array, the call of `tensors_of` is saved
        features = torch.from_numpy(seen) if type(seen) is np.ndarray and not fresh else tensors_of(seen, fresh=fresh)
        return Observation(features, is_first, torch.from_numpy(self.arrays.mask.copy()) if has_masks else None)

    def first(self, has_masks: bool) -> Observation:
        """The observation after a reset."""
        return self._observation(self._first, has_masks)

    def step(self, ended: Ended | None, has_masks: bool, valid: Tensor | None = None) -> EnvStep:
        """The record of a step. Rows that are not `valid` [B] start a new episode, although no episode ended in them."""
        reward = torch.from_numpy(self.arrays.reward.copy())
        valid = self.all_valid if valid is None else valid
        if ended is None:
            is_first = self._none if valid is self.all_valid else ~valid
            observation = self._observation(is_first, has_masks)
            return EnvStep(observation, reward, self._none, self._none, valid)
        return self._ended(ended, reward, valid, has_masks)

    def _ended(self, ended: Ended, reward: Tensor, valid: Tensor, has_masks: bool) -> EnvStep:
        """The record of a step in which episodes ended, for `reward` float [B] and `valid` bool [B]."""
        arrays = self.arrays
        terminated, truncated = torch.from_numpy(arrays.terminated.copy()), torch.from_numpy(arrays.truncated.copy())
        is_first = torch.from_numpy(arrays.terminated | arrays.truncated)
        if valid is not self.all_valid:
            is_first |= ~valid
        observation = self._observation(is_first, has_masks)
        mask = None if ended.mask is None else torch.from_numpy(ended.mask)
        later = torch.from_numpy(np.zeros(len(ended.rows), np.bool_))
        seen = ended.observation
        features = torch.from_numpy(seen) if type(seen) is np.ndarray else tensors_of(seen)
        final = Observation(features, later, mask)
        episodes = tuple(map(Episode, ended.rows, ended.returns, ended.lengths, ended.successes))
        return EnvStep(observation, reward, terminated, truncated, valid, final, episodes)


EVERYWHERE = "give one at every reset and step"
LATE = f"gave no {INFO!r} at its reset, but one at a step; {EVERYWHERE}"
"""The message for environments whose first mask comes with a step: masks are used only if a reset gives one."""


class Faults:
    """Raises errors that name an environment. `numbers` are the numbers of the copies; empty for a single environment."""

    def __init__(self, name: str, numbers: Sequence[int]) -> None:
        self.name, self.numbers = name, numbers

    def where(self, i: int) -> str:
        """The name and the number of environment `i` for messages."""
        number = f" (number {self.numbers[i]})" if self.numbers else ""
        return f"environment {self.name!r}{number}"

    def blame(self, i: int, what: str, cause: BaseException | None = None) -> NoReturn:
        """Raises EnvironmentFault that environment `i` did `what`. If `cause` is an error of rlsdk, or asks this process to
        stop, it is raised instead."""
        if isinstance(cause, RlsdkError):
            raise cause
        if cause is not None:
            raise_stop(cause)
        raise EnvironmentFault(f"{self.where(i)} {what}") from cause

    def named(self, i: int, step: int, check: Callable[..., ItemT], *arguments: object) -> ItemT:
        """The result of `check(*arguments)`. Its EnvironmentFault gets the environment `i` and the step of its episode."""
        try:
            return check(*arguments)
        except EnvironmentFault as error:
            self.blame(i, f"{error} (step {step} of its episode)")

    def checked(self, i: int, step: int, result: tuple[object, ...]) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated) of a step whose values have unusual types.

        Raises:
            EnvironmentFault: a value cannot be used.
        """
        _, reward, terminated, truncated, info = result
        self.named(i, step, require_info, info)
        found = self.named(i, step, number, reward)
        ends = self.named(i, step, flag, terminated, "terminated"), self.named(i, step, flag, truncated, "truncated")
        return found, *ends

    def require_valid(self, stacker: ObservationBatcher, seen: Arrays, call: str) -> None:
        """Raises EnvironmentFault when observations [B, ..] are not finite, or are outside a discrete space."""
        try:
            stacker.check(seen)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}, {call}: {error}") from None

    def explain_step(self, i: int, result: object, action: object, error: BaseException) -> NoReturn:
        """Raises EnvironmentFault, because `step` raised `error`, or returned a `result` that is not a tuple of five."""
        raise_stop(error)  # first: Ctrl-C may come when there is a result already
        if result is not None:
            self.blame(i, STEP)
        self.blame(i, raised(error, f"step({shown(action)})") + hint_for(error), error)

    def explain_rewards(self, rewards: Sequence[float], actions: ActionRows) -> None:
        """Raises EnvironmentFault for the first reward outside the range of float32. Does nothing if there is none."""
        for i, reward in enumerate(rewards):
            if not abs(reward) <= FLOAT32_MAX:
                self.blame(i, f"gave the reward {reward!r} for action {shown(actions[i])}; it must be a finite float32")

    def warn_of_actions(self, i: int, before: object, environment: Environment) -> GymSpace:
        """The action space of environment `i`; warn if it is not equal to the one `before`."""
        space = environment.action_space
        if space != before:
            warnings.warn(
                f"{self.where(i)} changed its action space to {shown(space)} at a reset; agents are made for one space:"
                " declare the largest, and forbid actions with action masks",
                stacklevel=2,
            )
        return space

    def warn_outside(self, stacker: ObservationBatcher, seen: Arrays) -> None:
        """Warn if float observations are outside their space. This check is too slow for every step."""
        if (where := stacker.outside(seen)) is not None:
            path, row = where
            warnings.warn(
                f"{self.where(row)}: {path} lies outside the observation space it declares;"
                " rlsdk_envs.check_env explains more",
                stacklevel=2,
            )


class InfoEntries:
    """The declared entries of the last step: `values` float32 [K, B], a row for each of K `names`, a column for each of B
    environments."""

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.names = tuple(names)
        self.values: NDArray[np.float32] = np.zeros((len(self.names), count), np.float32)

    def write(self, column: int, info: Mapping[str, object]) -> None:
        """Write the entries from the `info` of one environment into its column.

        Raises:
            EnvironmentFault: an entry is missing, or it is not a finite float32.
        """
        for row, name in enumerate(self.names):
            self.values[row, column] = entry(info, name)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> entries of all environments, float32 [B], copied."""
        return as_tensors(self.names, self.values)


def as_tensors(names: Sequence[str], values: NDArray[np.float32]) -> dict[str, Tensor]:
    """Name -> row of `values` float32 [K, B] as a tensor float32 [B], copied."""
    return dict(zip(names, torch.from_numpy(values.copy()), strict=True))


Work: TypeAlias = Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]]
"""A function (environments, items) -> results in the order of the items. The environments are copies of one environment."""


def groups(items: Sequence[ItemT], size: int, workers: int = 1) -> list[list[ItemT]]:
    """Split the items into groups of `size` items.

    With several workers, the last groups have fewer items, but at least about `size` / 2, so that all workers finish at about
    the same time. Smaller groups would be slower, because an item takes less time in a larger group.
    """
    found, start = list[list[ItemT]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found
