"""Environments with every kind of state that an agent file can hold."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch


def bounded(values: Any) -> Any:
    """Clip values to the observation space."""
    return np.clip(values, -9.0, 9.0)


class Assorted(gym.Env[Any, Any]):
    """An environment with all kinds of generators, containers and arrays, and attributes that no file may change."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)

    def __init__(self) -> None:
        self.action_space = gym.spaces.Discrete(2)
        self.folder, self.path, self.limit = "results", Path("results"), 12
        self.rule = bounded
        self.twister = np.random.Generator(np.random.MT19937(0))
        self.philox = np.random.Generator(np.random.Philox(0))
        self.small = np.random.Generator(np.random.SFC64(0))
        self.dxsm = np.random.Generator(np.random.PCG64DXSM(0))
        self.legacy = np.random.RandomState(0)
        self.plain = random.Random(0)
        self.torch = torch.Generator()
        self.recent: deque[float] = deque(maxlen=4)
        self.table = {"a": [1.0, 2.0], (1, 2): np.arange(3.0), "folder": "results"}
        self.names = ["one", "two"]
        self.visited = {(0, 0)}
        self.weights = torch.zeros(2)
        self.phase = "start"
        self.steps = np.int64(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.phase = np.int64(0), "start"
        self.recent.clear()
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.phase = "middle"
        self.table["a"][0] += float(self.np_random.normal())
        self.visited = {*list(self.visited)[-3:], (int(self.steps), int(action))}
        self.weights += 0.1
        seen = self._seen()
        self.recent.append(float(seen[0]))
        return seen, float(seen[1]), False, bool(self.steps >= self.limit), {}

    def _seen(self) -> Any:
        drawn = [self.twister.normal(), self.philox.normal(), self.small.integers(5), self.dxsm.normal()]
        drawn += [self.legacy.normal(), self.plain.random(), float(torch.rand(1, generator=self.torch))]
        total = sum(drawn) + sum(self.table["a"]) + float(self.weights.sum())
        return self.rule(np.array([total, drawn[0], self.steps], np.float32))


class Recording(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper with the attributes of a video recorder; it writes nothing."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.video_folder, self.prefix, self.every = "videos", "rl", 100
        self._video_name: str | None = None
        self.written: list[str] = []

    def step(self, action: Any) -> Any:
        self._video_name = "rl-episode-0"
        self.written = [f"{self.video_folder}/{self._video_name}"]
        return self.env.step(action)
