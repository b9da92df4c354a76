"""Wrappers whose work the agent does: the agent that trains on the environment normalises or stacks frames.

The agent's file holds the settings and statistics; `predict` and evaluation apply them. The settings `normalize` and
`frame_stack` do the same.
"""

from __future__ import annotations

from typing import Any

import attrs

from rlsdk.settings import Normalization, evolve


@attrs.frozen
class NormalizeObservation:
    """The agent normalises the float parts of observations by their running mean and deviation, and clips them."""

    env: object
    clip: float = 10.0

    def applied_to(self, config: object) -> Any:
        """The agent's settings, changed by this wrapper."""
        return _with_normalization(config, norm_obs=True, clip_obs=self.clip)


@attrs.frozen
class NormalizeReward:
    """The agent divides rewards by the running deviation of the discounted return; logs and evaluations stay true."""

    env: object
    gamma: float | None = None
    clip: float = 10.0

    def applied_to(self, config: object) -> Any:
        """The agent's settings, changed by this wrapper."""
        return _with_normalization(config, norm_reward=True, gamma=self.gamma, clip_reward=self.clip)


@attrs.frozen
class FrameStack:
    """The agent sees the last `count` observations at once."""

    env: object
    count: int = 4

    def applied_to(self, config: object) -> Any:
        """The agent's settings, changed by this wrapper."""
        return evolve(config, {"frame_stack": self.count})


def _with_normalization(config: Any, **changes: object) -> Any:
    current = config.normalize or Normalization(norm_obs=False, norm_reward=False)
    return evolve(config, {"normalize": evolve(current, changes)})


WrapperSetting = NormalizeObservation | NormalizeReward | FrameStack


def split_wrapper_settings(env: object) -> tuple[object, list[WrapperSetting]]:
    """(the environment itself, the wrappers of this module around it, outermost first)."""
    found: list[WrapperSetting] = []
    while isinstance(env, WrapperSetting):
        found.append(env)
        env = env.env
    return env, found
