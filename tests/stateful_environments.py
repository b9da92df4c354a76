"""Environments whose state cannot be captured, or that capture it themselves, and one written in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor


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


@dataclass(frozen=True)
class Point:
    """The state of `Chase`: the place now and one step before, and a counter."""

    place: Tensor
    before: Tensor
    count: Tensor


class Chase:
    """Points that are to be moved to 0. The observation has two parts that are the memory of the states."""

    observation_space: Any = spaces.Dict({"at": spaces.Box(-9, 9, (2,)), "was": spaces.Box(-9, 9, (2,))})
    action_space: Any = spaces.Box(-1.0, 1.0, (2,))
    max_episode_steps: Any = 5
    speed = 1.0

    def initial(self, count: int, rng: Generator) -> Any:
        place = torch.rand(count, 2, generator=rng, device=rng.device)
        return Point(place, torch.zeros_like(place), torch.zeros(count, dtype=torch.int64, device=rng.device))

    def transition(self, state: Any, action: Tensor, rng: Generator) -> Any:
        return Point(state.place + self.speed * action, state.place, state.count + 1)

    def observation(self, state: Any) -> Any:
        return {"at": state.place, "was": state.before}

    def reward(self, state: Any, action: Any, next_state: Any) -> Any:
        return next_state.place[:, 0]

    def terminal(self, state: Any) -> Any:
        return state.place.abs().amax(1) > 3
