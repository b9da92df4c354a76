"""Errors of environments that are stepped together. Their messages name the environment."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from rlsdk.environments.adapters.actions import ActionRows
from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.masks import INFO
from rlsdk.environments.adapters.nested import Arrays
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.environments.adapters.space_conversion import GymSpace
from rlsdk.environments.adapters.step_checks import FLOAT32_MAX, STEP, flag, mended_by, number, require_info
from rlsdk.errors import EnvironmentFault, ObservationError, RlsdkError, raised, shown

ItemT = TypeVar("ItemT")
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

    def blame(self, i: int, what: str, cause: Exception | None = None) -> NoReturn:
        """Raises EnvironmentFault that environment `i` did `what`. If `cause` is an error of rlsdk, it is raised instead."""
        if isinstance(cause, RlsdkError):
            raise cause
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

    def explain_step(self, i: int, result: object, action: object, error: Exception) -> NoReturn:
        """Raises EnvironmentFault, because `step` raised `error`, or returned a `result` that is not a tuple of five."""
        if result is not None:
            self.blame(i, STEP)
        self.blame(i, raised(error, f"step({shown(action)})") + mended_by(error), error)

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
                " rlsdk.environments.check_env explains more",
                stacklevel=2,
            )
