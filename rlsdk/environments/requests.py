"""Wrappers that belong to the agent: they ask the agent that trains on the environment to normalise or to stack frames.

What they ask for travels in the agent's file, acts in `predict` and evaluation, and cannot be forgotten. The same is
asked by the settings `normalize` and `frame_stack`.
"""

from __future__ import annotations

from typing import Any

import attrs

from rlsdk.settings import Normalization, evolve


@attrs.frozen
class NormalizeObservation:
    """The agent normalises the float parts of observations by their running mean and deviation, and clips them."""

    env: Any
    clip: float = 10.0

    def applied_to(self, config: Any) -> Any:
        """The agent's settings with what is asked for."""
        return _with_normalization(config, norm_obs=True, clip_obs=self.clip)


@attrs.frozen
class NormalizeReward:
    """The agent divides rewards by the running deviation of the discounted return; logs and evaluations stay true."""

    env: Any
    gamma: float | None = None
    clip: float = 10.0

    def applied_to(self, config: Any) -> Any:
        """The agent's settings with what is asked for."""
        return _with_normalization(config, norm_reward=True, gamma=self.gamma, clip_reward=self.clip)


@attrs.frozen
class FrameStack:
    """The agent sees the last `count` observations at once."""

    env: Any
    count: int = 4

    def applied_to(self, config: Any) -> Any:
        """The agent's settings with what is asked for."""
        return evolve(config, {"frame_stack": self.count})


def _with_normalization(config: Any, **changes: Any) -> Any:
    current = config.normalize or Normalization(norm_obs=False, norm_reward=False)
    return evolve(config, {"normalize": evolve(current, changes)})


Request = NormalizeObservation | NormalizeReward | FrameStack


def without_requests(env: Any) -> tuple[Any, list[Request]]:
    """(the environment itself, what was asked for around it, outermost first)."""
    found: list[Request] = []
    while isinstance(env, Request):
        found.append(env)
        env = env.env
    return env, found
