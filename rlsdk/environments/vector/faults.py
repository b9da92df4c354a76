"""The errors of environments that are stepped together: they name the environment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NoReturn

from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.environments.adapters.step_checks import FLOAT32_MAX
from rlsdk.errors import EnvironmentFault, RlsdkError, raised, shown


class Faults:
    """Names environments in errors; `numbers` of the copies, none for a single environment."""

    def __init__(self, name: str, numbers: Sequence[int]) -> None:
        self.name, self.numbers = name, numbers

    def where(self, i: int) -> str:
        """The environment, as messages name it."""
        number = f" (number {self.numbers[i]})" if self.numbers else ""
        return f"environment {self.name!r}{number}"

    def blame(self, i: int, what: str, cause: Exception | None = None) -> NoReturn:
        """Raises EnvironmentFault: environment `i` and `what` it did; or the `cause`, where it is an error of rlsdk."""
        if isinstance(cause, RlsdkError):
            raise cause
        raise EnvironmentFault(f"{self.where(i)} {what}") from cause

    def explain_step(self, i: int, result: object, action: object, error: Exception) -> NoReturn:
        """`step` raised, or gave a `result` that is no tuple of five."""
        if result is not None:
            self.blame(i, "step must return (observation, reward, terminated, truncated, info)")
        self.blame(i, raised(error, f"step({shown(action)})"), error)

    def explain_rewards(self, rewards: Sequence[float], actions: Sequence[object]) -> None:
        """The sum of a step's rewards is large or not finite: blame the first that float32 cannot hold."""
        for i, reward in enumerate(rewards):
            if not abs(reward) <= FLOAT32_MAX:
                self.blame(i, f"gave the reward {reward!r} for action {shown(actions[i])}; it must be a finite float32")

    def warn_outside(self, stacker: ObservationBatcher, seen: object) -> None:
        """Warn once of float observations outside their space: it costs too much to look at every step."""
        if (where := stacker.outside(seen)) is not None:
            path, row = where
            warnings.warn(
                f"{self.where(row)}: {path} lies outside the observation space it declares;"
                " rlsdk.environments.check_env explains more",
                stacklevel=2,
            )
