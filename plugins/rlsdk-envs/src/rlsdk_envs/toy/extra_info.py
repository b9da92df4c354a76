"""A wrapper that adds entries to `info`, for tests of algorithms that need such entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import gymnasium


class ExtraInfo(gymnasium.Wrapper[object, object, object, object]):
    """Adds each of `names` to the `info` of steps. The value is 1.0 at the first step and alternates with 0.0."""

    def __init__(self, env: gymnasium.Env[object, object], names: Sequence[str]) -> None:
        super().__init__(env)
        self.names, self.clock = tuple(names), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        self.clock = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.clock += 1
        return observation, reward, terminated, truncated, {**info, **dict.fromkeys(self.names, float(self.clock % 2))}
