"""Wrappers that change settings of the agent: the agent itself normalises or stacks frames, not the environment.

The agent's file contains the settings and statistics, and `predict` and evaluation apply them. The settings `normalize` and
`frame_stack` have the same effect.
"""

from __future__ import annotations

from typing import Any

import attrs

from rlsdk.settings import Normalization, evolve


@attrs.frozen
class NormalizeObservation:
    """Makes the agent normalise the float parts of observations by their running mean and deviation, and clip them."""

    env: object
    clip: float = 10.0

    def applied_to(self, config: object) -> Any:
        """The settings of the agent with the change that this wrapper makes."""
        return _with_normalization(config, norm_obs=True, clip_obs=self.clip)


@attrs.frozen
class NormalizeReward:
    """Makes the agent divide rewards by the running deviation of the discounted return.

    Logs and evaluations show the rewards of the environment.
    """

    env: object
    gamma: float | None = None
    clip: float = 10.0

    def applied_to(self, config: object) -> Any:
        """The settings of the agent with the change that this wrapper makes."""
        return _with_normalization(config, norm_reward=True, gamma=self.gamma, clip_reward=self.clip)


@attrs.frozen
class FrameStack:
    """Makes the agent act on the last `count` observations, stacked into one."""

    env: object
    count: int = 4

    def applied_to(self, config: object) -> Any:
        """The settings of the agent with the change that this wrapper makes."""
        return evolve(config, {"frame_stack": self.count})


def _with_normalization(config: Any, **changes: object) -> Any:
    current = config.normalize or Normalization(norm_obs=False, norm_reward=False)
    return evolve(config, {"normalize": evolve(current, changes)})


WrapperSetting = NormalizeObservation | NormalizeReward | FrameStack


def split_wrapper_settings(env: object) -> tuple[object, list[WrapperSetting]]:
    """(the environment without wrappers of this module, these wrappers, outermost first)."""
    found: list[WrapperSetting] = []
    while isinstance(env, WrapperSetting):
        found.append(env)
        env = env.env
    return env, found
