"""Environments whose state cannot be captured, or that capture it themselves."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Secretive(gym.Env[Any, Any]):
    """An environment whose position is in an opaque object, so that its state cannot be captured."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    class Position:
        __slots__ = ("at", "steps")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = Secretive.Position()
        self.position.at, self.position.steps = float(self.np_random.uniform(-1, 1)), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.position.at = float(np.clip(self.position.at + 0.1 * float(action[0]), -1, 1))
        self.position.steps += 1
        return self._seen(), -abs(self.position.at), False, self.position.steps == 70, {}

    def _seen(self) -> Any:
        return np.array([self.position.at], np.float32)


class Own(gym.Env[Any, Any]):
    """An environment with `get_state` and `set_state`, and an attribute that cannot be captured."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.hidden: Any = object()
        self.total = 0.0

    def get_state(self) -> Any:
        return {"total": self.total, "pair": (1, [2.5, float("inf")])}

    def set_state(self, state: Any) -> None:
        assert state["pair"] == (1, [2.5, float("inf")])
        self.total = state["total"]

    def step(self, action: Any) -> Any:
        self.total += float(self.np_random.normal())
        return np.zeros(1, np.float32), self.total, False, False, {}
