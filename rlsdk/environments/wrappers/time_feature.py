"""A wrapper that adds the remaining time to the observation. Source: Pardo et al. 2018, arXiv:1712.00378, section 3."""

from __future__ import annotations

from typing import Any, SupportsFloat, TypeGuard

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit

INNER, KEY = "observation", "time_feature"


class TimeFeature(gymnasium.Wrapper[object, object, object, object], RecordConstructorArgs):
    """Adds the remaining share of the episode, from 1 to 0, to the observation.

    It is appended to a vector: to the observation, or to the entry `observation` of a Dict, as in environments with goals. Any
    other Dict gets an entry `time_feature`. Images and other observations become a Dict with the entries `observation` and
    `time_feature`.

    The length of an episode is the time limit of the environment, or `max_steps` if it has none. With `test_mode=True` the
    feature is always 0, to test whether an agent relies on it.
    """

    def __init__(self, env: gymnasium.Env[object, object], max_steps: int = 1000, test_mode: bool = False) -> None:
        RecordConstructorArgs.__init__(self, max_steps=max_steps, test_mode=test_mode)
        gymnasium.Wrapper.__init__(self, env)
        self.max_steps, self.test_mode, self._steps = _time_limit(env) or max_steps, test_mode, 0
        share, space = spaces.Box(0.0, 1.0, (1,), np.float32), env.observation_space
        self._vector: spaces.Box | None = None
        """The space of the vector to which the time is appended; None if there is no such vector."""
        if _is_vector(space):
            self.observation_space = self._vector = _longer(space)
        elif not isinstance(space, spaces.Dict):
            self.observation_space = spaces.Dict({INNER: space, KEY: share})
        elif _is_vector(inner := space.spaces.get(INNER)):
            self._vector = _longer(inner)
            self.observation_space = spaces.Dict({**space.spaces, INNER: self._vector})
        else:
            self.observation_space = spaces.Dict({**space.spaces, KEY: share})

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation, info = self.env.reset(**kwargs)
        self._steps = 0
        return self._with_time(observation), info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        return self._with_time(observation), reward, terminated, truncated, info

    def _with_time(self, observation: Any) -> object:
        left = 0.0 if self.test_mode else max(0.0, 1.0 - self._steps / self.max_steps)
        if self._vector is not None:
            if not isinstance(observation, dict):
                return np.append(observation, left).astype(self._vector.dtype)
            return {**observation, INNER: np.append(observation[INNER], left).astype(self._vector.dtype)}
        entry = {KEY: np.array([left], np.float32)}
        return {**observation, **entry} if isinstance(observation, dict) else {INNER: observation, **entry}


def _is_vector(space: object) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)


def _longer(space: spaces.Box) -> spaces.Box:
    """The space of a vector with one more number between 0 and 1."""
    low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=np.dtype(space.dtype).type)


def _time_limit(env: gymnasium.Env[object, object]) -> int | None:
    """The number of steps of the outermost `TimeLimit` of `env`, or None."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None
