"""Environments under `acme/...`: no registration with gymnasium is needed."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Vector = NDArray[np.float32]


class Thermostat(gymnasium.Env[Vector, Vector]):
    """A room that is to stay at 20 degrees. The reward is minus the difference from 20 degrees."""

    observation_space = spaces.Box(-10.0, 50.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, outside: float = 5.0, length: int = 100) -> None:
        self.outside, self.length = outside, length

    def _seen(self) -> Vector:
        return np.clip(np.array([self.temperature], np.float32), -10.0, 50.0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Vector, dict[str, object]]:
        super().reset(seed=seed)
        self.time, self.temperature = 0, float(self.np_random.uniform(5.0, 35.0))
        return self._seen(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, object]]:
        self.time += 1
        self.temperature += 3.0 * float(action[0]) + 0.05 * (self.outside - self.temperature)
        return self._seen(), -abs(self.temperature - 20.0), False, self.time >= self.length, {}


def make(name: str, outside: float = 5.0, length: int = 100) -> Thermostat:
    """Make the environment called `name`, such as acme/Thermostat-v0."""
    if name != "acme/Thermostat-v0":
        raise gymnasium.error.UnregisteredEnv(f"acme has no {name}; it has acme/Thermostat-v0")
    return Thermostat(outside, length)
