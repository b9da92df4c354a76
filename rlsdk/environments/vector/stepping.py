"""Several copies of one environment, stepped one after another: numpy in, numpy out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule, mask_methods
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.environments.adapters.step_checks import FLAGS, NUMBERS, flag, number, require_info, success
from rlsdk.environments.vector.faults import Faults
from rlsdk.environments.vector.group_checks import require_alike, require_separate
from rlsdk.environments.vector.step_arrays import Ended, StepArrays
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, raised, shown
from rlsdk.spaces import Space

ItemT = TypeVar("ItemT")
SUCCESS = "is_success"
LARGEST = 1e38
"""Sum of a step's rewards from which each of them is looked at."""


class SteppedEnvironments:
    """B gymnasium environments with the same spaces; what can be done with them besides is in `EnvironmentGroup`."""

    def __init__(
        self,
        environments: Sequence[Environment],
        observation_space: Space,
        action_space: Space,
        name: str,
        arrays: StepArrays,
        *,
        numbers: Sequence[int] = (),
    ) -> None:
        """`numbers` of the copies are for messages; a single environment has none."""
        self.environments, self.name, self.arrays = list(environments), name, arrays
        self._faults = Faults(name, numbers)
        require_separate(self.environments, name)
        require_alike(self.environments, (observation_space, action_space), name)
        self.stacker, self.rule = ObservationBatcher(observation_space), MaskRule(action_space)
        self._plain = self.stacker.plain
        self.methods = mask_methods(environments) if self.rule.size else None
        self.has_masks = self.methods is not None
        self.renews = False
        """Whether observations are written to new arrays at every step and reset; else to the same ones."""
        nested = self._plain[0] is None
        self._is_float = self._plain[1] is not None and self._plain[1].kind == "f"
        self._fresh: Callable[[Any], object] = (lambda _: self.stacker.allocate(len(self))) if nested else np.empty_like
        self._steps: list[Callable[[Any], Any]] = [environment.step for environment in environments]
        self._returns = [0.0] * len(self.environments)
        self._clock, self._began = 0, [0] * len(self.environments)
        self._flagged = False  # whether an episode ended in the last step
        self.reset_infos: list[Mapping[str, object]] = [{} for _ in self.environments]
        """The `info` of each environment's last reset."""

    def __len__(self) -> int:
        return len(self.environments)

    def step(self, actions: Sequence[object]) -> Ended | None:
        """Step every environment with its own action; an episode that ends is followed by a reset.

        Raises:
            EnvironmentFault: an environment raised, or broke its declaration. MaskError: a mask is wrong.
        """
        arrays, has_masks, shape, dtype = self.arrays, self.has_masks, *self._plain
        arrays.observation = self._fresh(arrays.observation) if self.renews else arrays.observation
        target, rewards, infos = arrays.observation, [], {}
        if self._flagged:
            self._flagged = arrays.terminated[:] = arrays.truncated[:] = False
        for i, step in enumerate(self._steps):
            result = None
            try:
                result = observation, reward, terminated, truncated, info = step(actions[i])
            except Exception as error:
                self._faults.explain_step(i, result, actions[i], error)
            if (
                type(terminated) not in FLAGS
                or type(truncated) not in FLAGS
                or type(reward) not in NUMBERS
                or type(info) is not dict
            ):
                reward, terminated, truncated = self._checked(i, result)
            rewards.append(float(reward))
            if type(observation) is np.ndarray and observation.shape == shape and observation.dtype is dtype:
                target[i] = observation  # `write` would do the same, for the price of a call per environment
            else:
                self._write(i, observation, "step")
            if terminated or truncated:
                infos[i] = terminated, truncated, info
            if has_masks:
                self._read_mask(i, info)
        if not abs(sum(rewards)) < LARGEST:  # also when it is NaN
            self._faults.explain_rewards(rewards, actions)
        arrays.reward[:] = rewards
        self._returns = list(map(add, self._returns, rewards))
        self._clock += 1
        if infos:
            return self._finish(infos)
        self._check("step")
        return None

    def _finish(self, endings: dict[int, tuple[object, object, Mapping[str, object]]]) -> Ended:
        """Take the last observations aside and start the next episodes."""
        rows, arrays = list(endings), self.arrays
        self._check("step", masks=False)
        self._flagged = True
        seen = arrays.observation
        final = seen[rows] if type(seen) is np.ndarray else self.stacker.rows_of(seen, rows)
        mask = self._final_masks(rows) if self.has_masks else None
        ended = Ended(rows, final, mask, [], [], [])
        for i, (terminated, truncated, info) in endings.items():
            arrays.terminated[i], arrays.truncated[i] = terminated, truncated
            ended.returns.append(self._returns[i])
            ended.lengths.append(self._clock - self._began[i])
            ended.successes.append(self._field(i, success, info, steps=0) if SUCCESS in info else None)
            self._reset(i, None)
        self._check("reset")
        return ended

    def _final_masks(self, rows: list[int]) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.arrays.mask[rows]
        mask[self.rule.without_choice(mask)] = True  # nothing may be left to do when an episode is over
        return mask

    def _reset(self, i: int, seed: int | None) -> None:
        self._returns[i], self._began[i] = 0.0, self._clock
        try:
            result = self.environments[i].reset(seed=seed)
        except Exception as error:
            self._faults.blame(i, raised(error, "reset"), error)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            self._faults.blame(i, f"reset must return (observation, info), info a dict; it returned {shown(result)}")
        self.reset_infos[i] = result[1]
        if type(result[0]) is np.ndarray and (result[0].shape, result[0].dtype) == self._plain:
            self.arrays.observation[i] = result[0]
        else:
            self._write(i, result[0], "reset")
        if self.rule.size and self.methods is None and INFO in result[1]:
            self.has_masks = True
        if self.has_masks:
            self._read_mask(i, result[1])

    def _write(self, i: int, observation: object, call: str) -> None:
        try:
            self.stacker.write(self.arrays.observation, i, observation)
        except ObservationError as error:
            self._faults.blame(i, f"{call}: {error}")

    def _read_mask(self, i: int, info: Mapping[str, object]) -> None:
        if self.methods is None and INFO not in info:
            self._faults.blame(i, f"gave an {INFO!r} in its info before, but not now; give one at every reset and step")
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
        # a finite sum of squares proves that all are finite
        if not (self._is_float and math.isfinite(np.vdot(seen, seen))):
            self._look_at(seen, call)
        if masks and self.has_masks:
            self._check_masks(call)

    def _look_at(self, seen: object, call: str) -> None:
        try:
            self.stacker.check(seen)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}, {call}: {error}") from None

    def _check_masks(self, call: str) -> None:
        try:
            self.rule.require_choice(self.arrays.mask)
        except MaskError as error:
            raise MaskError(f"environment {self.name!r}, {call}: {error}") from None

    def _checked(self, i: int, result: Any) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated) of a step that gave unusual types."""
        _, reward, terminated, truncated, info = result
        self._field(i, require_info, info)
        found = self._field(i, number, reward)
        return found, self._field(i, flag, terminated, "terminated"), self._field(i, flag, truncated, "truncated")

    def _field(self, i: int, check: Callable[..., ItemT], *arguments: object, steps: int = 1) -> ItemT:
        """`check(*arguments)`; its errors name the environment and the step: `steps` after the clock's."""
        try:
            return check(*arguments)
        except EnvironmentFault as error:
            self._faults.blame(i, f"{error} (step {self._clock - self._began[i] + steps} of its episode)")
