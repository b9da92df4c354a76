"""A placeholder for the environment of an agent that learns from recorded data only."""

from __future__ import annotations

from typing import NoReturn

import gymnasium

from rlsdk.errors import UsageError


class RecordedOnly(gymnasium.Env[object, object]):
    """Spaces for agents that learn from recorded data. `reset` and `step` raise UsageError. See `rlsdk_interchange`."""

    def __init__(self, observation_space: gymnasium.Space[object], action_space: gymnasium.Space[object]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> NoReturn:
        self._refuse()

    def step(self, action: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            "there is no environment, only recordings: use train(gradient_steps), or set_env(env) before learn, and"
            " evaluate with another environment"
        )
