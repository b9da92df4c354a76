"""Errors and warnings that name an environment: invalid values, declared entries of infos, episodes that do not end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
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
    entry,
    flag,
    hint_for,
    named,
    number,
    require_info,
    success,
    time_limit,
)
from rlsdk.environments.adapters.masks import INFO
from rlsdk.environments.adapters.observations import ActionRows, Arrays, GymSpace, ObservationBatcher
from rlsdk.environments.vector.connected import seed_spaces
from rlsdk.errors import EnvironmentFault, ObservationError, RlsdkError, raise_stop, raised, shown
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Episode

ItemT = TypeVar("ItemT")


StepResult: TypeAlias = "tuple[object, SupportsFloat, bool, bool, dict[str, object]]"
"""The type that `step` declares as its result. It is checked, because environments may return anything."""
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
        return dict(zip(self.names, torch.from_numpy(self.values.copy()), strict=True))


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
