"""The environment of a training that is running, as callbacks get it."""

from __future__ import annotations

from typing import Any, NoReturn

from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.errors import UsageError

MOVING = ("reset", "step", "map", "set_state")
"""Methods that disturb the running episodes."""


class EnvInTraining:
    """An environment that can be asked anything and refuses to be moved: training would store a step that never happened."""

    def __init__(self, env: ConnectedEnv) -> None:
        self.trained_in = env
        """The environment itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying asks for such methods before there is an environment
            raise AttributeError(name)
        return refuse_move if name in MOVING else getattr(self.trained_in, name)


def itself(env: ConnectedEnv | None) -> ConnectedEnv | None:
    """The environment that an `EnvInTraining` keeps; any other is given back."""
    return env.trained_in if isinstance(env, EnvInTraining) else env


def refuse_move(*_: object, **__: object) -> NoReturn:
    """Raises UsageError."""
    raise UsageError("a training is running in this environment; use another environment for steps during training")
