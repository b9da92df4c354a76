"""The environment that callbacks get while a training is running."""

from __future__ import annotations

from typing import Any, NoReturn

from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.errors import UsageError

MOVING = ("reset", "step", "map", "set_state")
"""Methods that disturb the running episodes."""


class EnvInTraining:
    """Gives read access to the environment of a running training, and refuses calls such as `step` and `reset`.

    After such a call, the training would store a transition that never happened.
    """

    def __init__(self, env: ConnectedEnv) -> None:
        self.trained_in = env
        """The environment of the training."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` looks up such methods before `trained_in` exists
            raise AttributeError(name)
        return refuse_move if name in MOVING else getattr(self.trained_in, name)


def itself(env: ConnectedEnv | None) -> ConnectedEnv | None:
    """The environment inside an `EnvInTraining`; any other environment is returned unchanged."""
    return env.trained_in if isinstance(env, EnvInTraining) else env


def refuse_move(*_: object, **__: object) -> NoReturn:
    """Raises UsageError, because the environment is in use by a training."""
    raise UsageError("a training is running in this environment; use another environment for steps during training")
