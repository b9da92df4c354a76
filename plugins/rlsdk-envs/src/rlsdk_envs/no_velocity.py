"""Control tasks with hidden velocities, which need a policy with memory: `rlsdk/CartPoleNoVel-v1` and others."""

from __future__ import annotations

from typing import Any

import gymnasium

from rlsdk.environments.wrappers.mask_velocity import MaskVelocity


def without_velocity(task: str, **kwargs: Any) -> Any:
    """The gymnasium environment `task` inside `MaskVelocity`. `kwargs` are arguments of `gymnasium.make`."""
    return MaskVelocity(gymnasium.make(task, **kwargs))
