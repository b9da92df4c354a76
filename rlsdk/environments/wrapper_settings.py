"""Wrappers that change settings of the agent: the agent itself normalises or stacks frames, not the environment.

The agent's file contains the settings and statistics, and `predict` and evaluation apply them. The settings `normalize` and
`frame_stack` have the same effect.
"""

from __future__ import annotations

import warnings
from typing import Any

import attrs

from rlsdk.environments.adapters.attributes import layers_of
from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.settings import Normalization, evolve

STATISTICS = {"obs_rms": "norm_obs", "return_rms": "norm_reward", "ret_rms": "norm_reward"}
"""Attribute of a wrapper that normalizes by running statistics -> the part of `normalize` that does the same."""


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


def warn_of_statistics(env: ConnectedEnv, what: str) -> None:
    """Warn that environments normalize by running statistics of their own, as gymnasium's `NormalizeObservation` does.

    No file has these statistics, and each copy has others. Frozen ones (`update_running_mean = False`) are not meant.
    `what` names the environments in the message.
    """
    found = [name for name in STATISTICS if _has(env, name)]
    if not found or _is_frozen(env):
        return
    parts = ", ".join(dict.fromkeys(STATISTICS[name] for name in found))
    warnings.warn(
        f"{what} {env.name!r} normalizes by running statistics of its own ({', '.join(found)}), which are in no agent file and"
        f" differ from copy to copy; leave that wrapper out and give the agent normalize=True ({parts})",
        stacklevel=3,
    )


def _has(env: ConnectedEnv, name: str) -> bool:
    """Whether an environment, a wrapper of it, or a wrapper of the vector environment has the attribute `name`."""
    if any(hasattr(layer, name) for layer in layers_of(getattr(env, "env", None))):
        return True
    try:
        return any(env.env_method("has_wrapper_attr", name))
    except Exception:  # without separate environments, and environments of users raise any error
        return False


def _is_frozen(env: ConnectedEnv) -> bool:
    try:
        updates = [env.env.update_running_mean] if hasattr(env, "env") else env.get_attr("update_running_mean")
    except Exception:  # not a wrapper of gymnasium
        return False
    return all(update is False for update in updates)
