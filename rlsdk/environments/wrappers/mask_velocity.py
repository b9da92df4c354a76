"""A wrapper that hides velocities, so that an agent needs memory."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from rlsdk.environments.adapters.attributes import named, spec_of
from rlsdk.errors import SettingsError

VELOCITIES = {
    "CartPole-v1": (1, 3),
    "MountainCar-v0": (1,),
    "MountainCarContinuous-v0": (1,),
    "Pendulum-v1": (2,),
    "LunarLander-v3": (2, 3, 5),
    "LunarLanderContinuous-v3": (2, 3, 5),
}
"""Environment id -> indices of the velocities in its observations."""


class MaskVelocity(gymnasium.ObservationWrapper[object, object, object], RecordConstructorArgs):
    """Sets the velocities of a vector observation to 0.

    `indices` are the indices of the velocities in the vector; None: those in `VELOCITIES`.
    """

    def __init__(self, env: gymnasium.Env[object, object], indices: Sequence[int] | None = None) -> None:
        RecordConstructorArgs.__init__(self, indices=indices)
        gymnasium.ObservationWrapper.__init__(self, env)
        spec = spec_of(env)
        name = "" if spec is None else spec.id
        if indices is None and name not in VELOCITIES:
            raise SettingsError(f"the velocities of {name or named(env)} are not known; give indices=[...]")
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise SettingsError(f"MaskVelocity needs a vector observation, got {space}")
        self._keep = np.ones(space.shape, space.dtype)
        self._keep[list(VELOCITIES[name] if indices is None else indices)] = 0

    def observation(self, observation: object) -> object:
        return np.asarray(observation) * self._keep
