"""Control tasks whose velocities are hidden, so that a policy needs memory: `rlsdk/CartPoleNoVel-v1` and others."""

from __future__ import annotations

from typing import Any

import gymnasium

from rlsdk.environments.wrappers.mask_velocity import MaskVelocity


def without_velocity(task: str, **kwargs: Any) -> Any:
    """The gymnasium environment `task` behind `MaskVelocity`."""
    return MaskVelocity(gymnasium.make(task, **kwargs))
