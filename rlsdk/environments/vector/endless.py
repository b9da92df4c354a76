"""Limits for code that waits for the end of episodes, which perhaps never comes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from rlsdk.environments.adapters.attributes import time_limit
from rlsdk.errors import EnvironmentFault
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Episode

LONG = 30_000
"""Steps of an episode after which there is a warning. The longest games of Atari have 27,000."""
MOST = 1_000_000
"""Steps of an episode after which there is an error, unless the environment has a time limit above it."""
UNHEARD = 5_000
"""Steps of each environment without the end of an episode, after which a training gives a hint."""


def require_end(env: Any, name: str, steps: int) -> int:
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
