"""Control tasks whose velocities are hidden, so that a policy needs memory: `rlsdk/CartPoleNoVel-v1` and others."""

from __future__ import annotations

from typing import Any

import gymnasium

from rlsdk.environments.wrappers import MaskVelocity

TASKS = ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "LunarLander-v3")


def without_velocity(task: str, **kwargs: Any) -> Any:
    """The gymnasium environment `task` behind `MaskVelocity`."""
    return MaskVelocity(gymnasium.make(task, **kwargs))


def register() -> None:
    """Make them known to gymnasium as rlsdk/<name>NoVel-<version>; calling it again does nothing."""
    for task in TASKS:
        name, _, version = task.partition("-")
        identity = f"rlsdk/{name}NoVel-{version}"
        if identity not in gymnasium.registry:
            entry = f"{__name__}:without_velocity"
            gymnasium.register(identity, entry, kwargs={"task": task}, disable_env_checker=True)
