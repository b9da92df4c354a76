"""Several copies of one environment, stepped one after another: numpy in, numpy out.

The same code runs in this process (`in_process.py`) and in the processes of `processes.py`, so both behave alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.masks import INFO, METHOD, MaskRule, mask_methods
from rlsdk.environments.observations import Allocate, Stacker
from rlsdk.environments.space_conversion import spaces_of
from rlsdk.environments.standing import count_reset, standing
from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.step_checks import FLAGS, NUMBERS, flag, number, require_info, success
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, RlsdkError, fitting, message_of
from rlsdk.runtime.output import shown
from rlsdk.spaces import Space

FLOAT32_MAX = 3.4028234663852886e38
"""Rewards are kept as float32."""
Work = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Answers for items, in their order, worked out in environments that are all alike."""
LARGEST = 1e38
"""Sum of a step's rewards from which each of them is looked at."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Episodes that ended in one step: F rows, ascending, with the true last observation and mask of each."""

    rows: list[int]
    observation: Any  # arrays [F, ...]
    mask: NDArray[np.bool_] | None  # [F, A]
    returns: list[float]
    lengths: list[int]
    successes: list[bool | None]


class StepArrays:
    """Where copies write what a step gave: one row per environment."""

    def __init__(self, observation_space: Space, action_space: Space, rows: int, make: Allocate) -> None:
        self.observation = Stacker(observation_space).allocate(rows, make)
        self.reward = make((rows,), np.float32)
        self.terminated, self.truncated = make((rows,), np.bool_), make((rows,), np.bool_)
        self.mask = make((rows, MaskRule(action_space).size), np.bool_)

    def part(self, start: int, end: int) -> StepArrays:
        """Views of the rows from `start` to `end`."""
        view = object.__new__(StepArrays)
        view.observation = _rows(self.observation, slice(start, end))
        view.reward, view.mask = self.reward[start:end], self.mask[start:end]
        view.terminated, view.truncated = self.terminated[start:end], self.truncated[start:end]
        return view


class Copies:
    """B gymnasium environments with the same spaces; an episode that ends is followed by a reset in the same step."""

    def __init__(
        self,
        environments: Sequence[Any],
        observation_space: Space,
        action_space: Space,
        name: str,
        arrays: StepArrays,
        *,
        numbers: Sequence[int] = (),
    ) -> None:
        """`numbers` of the copies are for messages; a single environment has none."""
        self.environments, self.name, self.arrays, self.numbers = list(environments), name, arrays, numbers
        require_separate(self.environments, name)
        require_alike(self.environments, (observation_space, action_space), name)
        self.stacker, self.rule = Stacker(observation_space), MaskRule(action_space)
        self._plain = self.stacker.plain
        self.methods = mask_methods(environments) if self.rule.size else None
        self.has_masks = self.methods is not None
        self._bounds_checked = False
        self._steps: list[Callable[[Any], Any]] = [environment.step for environment in environments]
        self._returns = [0.0] * len(self.environments)
        self._clock, self._began = 0, [0] * len(self.environments)
        self._flagged = False  # whether an episode ended in the last step
        self.infos: list[dict[str, Any]] = []
        """After `keep_infos(True)`: what each environment said in the last step."""
        self.reset_infos: list[Any] = [{} for _ in self.environments]
        """What each environment said in its last reset."""

    def __len__(self) -> int:
        return len(self.environments)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Start an episode everywhere.

        Raises:
            EnvironmentFault: an environment raised, or broke its declaration. MaskError: a mask is wrong.
        """
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._check_bounds()

    def step(self, actions: Sequence[Any]) -> Ended | None:
        """Step every environment with its own action; raises as `reset`."""
        arrays, has_masks, shape, dtype = self.arrays, self.has_masks, *self._plain
        target, rewards, infos = arrays.observation, [], {}
        if self._flagged:
            self._flagged = arrays.terminated[:] = arrays.truncated[:] = False
        for i, step in enumerate(self._steps):
            result = None
            try:
                result = observation, reward, terminated, truncated, info = step(actions[i])
            except Exception as error:
                self._explain(i, result, actions[i], error)
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
            self._explain_rewards(rewards, actions)
        arrays.reward[:] = rewards
        self._returns = list(map(add, self._returns, rewards))
        self._clock += 1
        if infos:
            return self._finish(infos)
        self._check("step")
        return None

    @property
    def keeps_infos(self) -> bool:
        """Whether `infos` are noted at every step."""
        return bool(self.infos)

    def keep_infos(self, keep: bool) -> None:
        """Note `infos` at every step from now on, or no longer; what is not noted costs nothing."""
        self.infos = [{} for _ in self.environments] if keep else []
        steps = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if keep else steps

    def _noting(self, i: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noting(action: Any) -> Any:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and result else None
            self.infos[i] = dict(info) if isinstance(info, Mapping) else {}
            return result

        return noting

    def standing(self) -> tuple[Any, ...]:
        """What changes when the environments are moved, by this or by others; see `standing_of`."""
        return self._clock, *map(standing, self.environments)

    def get_state(self) -> list[dict[str, Any]]:
        """Where every environment stands.

        Raises:
            OpaqueValue: one holds something whose state cannot be read.
        """
        facts = zip(self.environments, self._returns, self._began, strict=True)
        return [
            {"environment": capture(environment), "return": total, "length": self._clock - began}
            for environment, total, began in facts
        ]

    def set_state(self, states: Sequence[Any], has_masks: bool) -> None:
        """Put back what `get_state` gave, into environments made the same way; no episode begins.

        Raises:
            ArtifactError: the state is damaged, or of other environments.
        """
        self.reset([0] * len(self.environments))
        self.has_masks, self._clock = has_masks, 0
        for i, state in enumerate(states):
            with fitting("the file's environments cannot be taken up"):
                restore(self.environments[i], state["environment"])
                self._returns[i], self._began[i] = running_episode(state)

    def apply(self, work: Work, items: Sequence[Any]) -> list[Any]:
        """`work(environments, items)`; its errors name the environment."""
        try:
            return work(self.environments, items)
        except RlsdkError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"environment {self.name!r} raised {type(error).__name__}: {message_of(error)}"
            ) from error

    def _finish(self, endings: dict[int, tuple[Any, Any, Any]]) -> Ended:
        """Take the last observations aside and start the next episodes."""
        rows, arrays = list(endings), self.arrays
        self._check("step", masks=False)
        self._flagged = True
        final = self.stacker.rows_of(arrays.observation, rows)
        mask = arrays.mask[rows] if self.has_masks else None
        if mask is not None:
            mask[self.rule.without_choice(mask)] = True  # nothing may be left to do when an episode is over
        ended = Ended(rows, final, mask, [], [], [])
        for i, (terminated, truncated, info) in endings.items():
            arrays.terminated[i], arrays.truncated[i] = terminated, truncated
            ended.returns.append(self._returns[i])
            ended.lengths.append(self._clock - self._began[i])
            ended.successes.append(self._field(i, success, info, steps=0))
            self._reset(i, None)
        self._check("reset")
        return ended

    def _reset(self, i: int, seed: int | None) -> None:
        self._returns[i], self._began[i] = 0.0, self._clock
        try:
            result = self.environments[i].reset(seed=seed)
        except Exception as error:
            self._blame(i, f"raised {type(error).__name__} in reset: {message_of(error)}", error)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            self._blame(i, f"reset must return (observation, info), info a dict; it returned {shown(result)}")
        self.reset_infos[i] = result[1]
        self._write(i, result[0], "reset")
        if self.rule.size and self.methods is None and INFO in result[1]:
            self.has_masks = True
        if self.has_masks:
            self._read_mask(i, result[1])

    def _write(self, i: int, observation: Any, call: str) -> None:
        try:
            self.stacker.write(self.arrays.observation, i, observation)
        except ObservationError as error:
            self._blame(i, f"{call}: {error}")

    def _read_mask(self, i: int, info: Any) -> None:
        if self.methods is None and INFO not in info:
            self._blame(i, f"gave an {INFO!r} in its info before, but not now; give one at every reset and step")
        try:
            given = info[INFO] if self.methods is None else self.methods[i]()
        except Exception as error:
            self._blame(i, f"raised {type(error).__name__} in {METHOD}(): {message_of(error)}", error)
        try:
            self.arrays.mask[i] = self.rule.row(given)
        except MaskError as error:
            raise MaskError(f"{self._where(i)}: {error}") from None

    def _check(self, call: str, *, masks: bool = True) -> None:
        try:
            self.stacker.check(self.arrays.observation)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}, {call}: {error}") from None
        if masks and self.has_masks:
            try:
                self.rule.require_choice(self.arrays.mask)
            except MaskError as error:
                raise MaskError(f"environment {self.name!r}, {call}: {error}") from None

    def _check_bounds(self) -> None:
        """Warn once of float observations outside their space: it costs too much to look at every step."""
        if (where := self.stacker.outside(self.arrays.observation)) is not None:
            path, row = where
            warnings.warn(
                f"{self._where(row)}: {path} lies outside the observation space it declares;"
                " rlsdk.environments.check_env tells more",
                stacklevel=2,
            )

    def _explain(self, i: int, result: Any, action: Any, error: Exception) -> NoReturn:
        """`step` raised, or gave a `result` that is no tuple of five."""
        if result is not None:
            self._blame(i, "step must return (observation, reward, terminated, truncated, info)")
        self._blame(i, f"raised {type(error).__name__} in step({shown(action)}): {message_of(error)}", error)

    def _checked(self, i: int, result: Any) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated) of a step that gave unusual types."""
        _, reward, terminated, truncated, info = result
        self._field(i, require_info, info)
        found = self._field(i, number, reward)
        return found, self._field(i, flag, terminated, "terminated"), self._field(i, flag, truncated, "truncated")

    def _field(self, i: int, check: Callable[..., Any], *arguments: Any, steps: int = 1) -> Any:
        """`check(*arguments)`; its errors name the environment and the step: `steps` after the clock's."""
        try:
            return check(*arguments)
        except EnvironmentFault as error:
            self._blame(i, f"{error} (step {self._clock - self._began[i] + steps} of its episode)")

    def _explain_rewards(self, rewards: Sequence[float], actions: Sequence[Any]) -> None:
        """The sum of a step's rewards is large or not finite: blame the first that float32 cannot hold."""
        for i, reward in enumerate(rewards):
            if not abs(reward) <= FLOAT32_MAX:
                self._blame(
                    i, f"gave the reward {reward!r} for action {shown(actions[i])}; it must be a finite float32"
                )

    def _where(self, i: int) -> str:
        number = f" (number {self.numbers[i]})" if self.numbers else ""
        return f"environment {self.name!r}{number}"

    def _blame(self, i: int, what: str, cause: Exception | None = None) -> NoReturn:
        if isinstance(cause, RlsdkError):
            raise cause
        raise EnvironmentFault(f"{self._where(i)} {what}") from cause

    def close(self) -> None:
        """Close every environment, then raise EnvironmentFault if one of them could not be closed."""
        failed: Exception | None = None
        for environment in self.environments:
            try:
                environment.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise EnvironmentFault(
                f"environment {self.name!r} raised {type(failed).__name__} in close(): {message_of(failed)}"
            ) from failed


def require_separate(environments: Sequence[Any], name: str) -> None:
    """Raises EnvironmentFault when one environment stands twice among `environments`, inside wrappers too."""
    inner = [id(environment.unwrapped) for environment in environments]
    if len(set(inner)) < len(inner):
        first = next(i for i, own in enumerate(inner) if own in inner[:i])
        raise EnvironmentFault(
            f"environment {name!r}: numbers {inner.index(inner[first])} and {first} are one and the same instance, so both"
            " would step it; give a function that makes a new environment at each call, such as lambda: gymnasium.make(id)"
        )


def require_alike(environments: Sequence[Any], pair: tuple[Space, Space], name: str) -> None:
    """Raises EnvironmentFault when an environment has other spaces than `pair`."""
    for i, environment in enumerate(environments):
        own = spaces_of(environment)
        for kind, mine, theirs in zip(("observation", "action"), own, pair, strict=True):
            if mine != theirs:
                raise EnvironmentFault(
                    f"environment {name!r}: number {i} has the {kind} space {mine}, number 0 has {theirs};"
                    " environments that are stepped together must have the same spaces"
                )


def groups(items: Sequence[Any], size: int, workers: int = 1) -> list[list[Any]]:
    """The items, `size` at a time; for several workers the last groups are half as large, so that all end at about the
    same time. Smaller ones would cost more than is won: what plays many items side by side plays each faster."""
    found, start = list[list[Any]](), 0
    while start < len(items):
        count = min(size, max(-(-size // 2), -(-(len(items) - start) // workers)))
        found.append(list(items[start : start + count]))
        start += count
    return found


def _rows(arrays: Any, where: Any) -> Any:
    if isinstance(arrays, dict):
        return {key: _rows(value, where) for key, value in arrays.items()}
    return tuple(_rows(value, where) for value in arrays) if isinstance(arrays, tuple) else arrays[where]
