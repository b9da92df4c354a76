"""A wrapper that raises an error at the first NaN or infinity, and names its origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from rlsdk.environments.adapters.attributes import name_of
from rlsdk.errors import EnvironmentFault


class CheckNan(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Raises `EnvironmentFault` when an action, observation or reward is NaN (or infinite, unless `check_inf=False`)."""

    def __init__(self, env: gymnasium.Env[object, object], check_inf: bool = True) -> None:
        RecordConstructorArgs.__init__(self, check_inf=check_inf)
        gymnasium.Wrapper.__init__(self, env)
        self.check_inf = check_inf
        self._steps, self._last_action = 0, "none yet"
        self._name = name_of(env)

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation, info = self.env.reset(**kwargs)
        self._steps, self._last_action = 0, "none yet"
        self._check(observation, "observation")
        return observation, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        self._check(action, "action")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps, self._last_action = self._steps + 1, str(action)
        self._check(observation, "observation")
        self._check(reward, "reward")
        return observation, reward, terminated, truncated, info

    def _check(self, value: object, field: str) -> None:
        for path, leaf in _leaves(value, field):
            wrong = ~np.isfinite(leaf) if self.check_inf else np.isnan(leaf)
            if np.any(wrong):
                raise EnvironmentFault(
                    f"environment {self._name!r}, step {self._steps}: {path} holds {np.asarray(leaf)[wrong].ravel()[0]};"
                    f" the last action was {self._last_action}"
                )


def _leaves(value: object, path: str) -> Iterator[tuple[str, NDArray[np.floating]]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(child, f"{path}[{key!r}]")
    elif isinstance(value, tuple):
        for i, child in enumerate(value):
            yield from _leaves(child, f"{path}[{i}]")
    else:
        array = np.asarray(value)
        if array.dtype.kind == "f":
            yield path, array
