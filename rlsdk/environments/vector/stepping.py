"""Steps several copies of an environment one after the other, with numpy arrays as input and output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any, SupportsFloat, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.adapters.actions import ActionRows
from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule
from rlsdk.environments.adapters.nested import Array, Arrays, rows_of
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.environments.adapters.step_checks import FLAGS, LARGEST_INT, NUMBERS, mended_by, success
from rlsdk.environments.vector.faults import EVERYWHERE, LATE, Faults
from rlsdk.environments.vector.group_checks import masks_of_all, require_alike, require_separate
from rlsdk.environments.vector.info_entries import InfoEntries
from rlsdk.environments.vector.seeds import Options, seed_spaces
from rlsdk.environments.vector.step_arrays import Ended, StepArrays
from rlsdk.errors import MaskError, ObservationError, raised, shown

ItemT = TypeVar("ItemT")
StepResult: TypeAlias = "tuple[object, SupportsFloat, bool, bool, dict[str, object]]"
"""The type that `step` declares as its result. It is checked, because environments may return anything."""
SUCCESS = "is_success"
LARGEST = 1e38
"""If the absolute sum of the rewards of a step reaches this number, each reward is checked."""


class SteppedEnvironments:
    """Steps B gymnasium environments with the same spaces. The subclass `EnvironmentGroup` adds all other methods."""

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
        self._allocate: Callable[[], Arrays] = lambda: arrays.observation
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
            except Exception as error:
                self._faults.explain_step(i, result, actions[i], error)
            if (
                type(terminated) not in FLAGS
                or type(truncated) not in FLAGS
                or type(reward) not in NUMBERS
                or (type(reward) is int and abs(reward) > LARGEST_INT)
                or type(info) is not dict
            ):
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
        except Exception as error:
            self._faults.blame(i, raised(error, "reset") + mended_by(error), error)
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
        except Exception as error:
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
