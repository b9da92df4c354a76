"""Several environments of this process as one vector environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.observations import Stacker
from rlsdk.errors import EnvironmentFault, ObservationError, RlsdkError
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.seeding import derive
from rlsdk.spaces import Space


class InProcessEnvs:
    """B gymnasium environments stepped one after another; an episode that ends is followed by a reset in the same step."""

    def __init__(
        self, environments: Sequence[Any], observation_space: Space, action_space: Space, *, name: str
    ) -> None:
        self.environments, self.name = list(environments), name
        self.observation_space, self.action_space = observation_space, action_space
        self._decode, self._stack_rows = ActionDecoder(action_space), Stacker(observation_space)
        self._returns = [0.0] * len(self.environments)
        self._lengths = [0] * len(self.environments)
        self._all_valid = torch.ones(len(self.environments), dtype=torch.bool)

    @property
    def num_envs(self) -> int:
        return len(self.environments)

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode everywhere; with a seed, environment i gets a stream of its own derived from it."""
        values = []
        for i in range(self.num_envs):
            own = None if seed is None else derive(seed, "environment", i) % 2**31
            values.append(self._reset(i, own))
        self._returns, self._lengths = [0.0] * self.num_envs, [0] * self.num_envs
        return Observation(self._stack(values, "reset"), torch.ones(self.num_envs, dtype=torch.bool))

    def step(self, action: Tensor) -> EnvStep:
        actions = self._decode(action)
        results = [self._step(i, actions[i]) for i in range(self.num_envs)]
        reward = torch.from_numpy(np.array([r[1] for r in results], np.float32))
        terminated = torch.from_numpy(np.array([r[2] for r in results], np.bool_))
        truncated = torch.from_numpy(np.array([r[3] for r in results], np.bool_))
        values = [r[0] for r in results]
        ended = [i for i, r in enumerate(results) if r[2] or r[3]]
        final, episodes = None, []
        if ended:
            rows = self._stack([values[i] for i in ended], "step")
            final = Observation(rows, torch.zeros(len(ended), dtype=torch.bool))
            for i in ended:
                episodes.append(self._finish(i, results[i][4]))
                values[i] = self._reset(i, None)
        is_first = terminated | truncated
        observation = Observation(self._stack(values, "step"), is_first)
        return EnvStep(observation, reward, terminated, truncated, self._all_valid, final, tuple(episodes))

    def _step(self, i: int, action: Any) -> tuple[Any, float, bool, bool, Any]:
        # scalar actions are handed over as Python-compatible numpy scalars, arrays as they are
        try:
            result = self.environments[i].step(action)
        except Exception as error:
            self._blame(i, f"raised {type(error).__name__} in step({action}): {error}", error)
        if not isinstance(result, tuple) or len(result) != 5:
            self._blame(i, "step must return (observation, reward, terminated, truncated, info)")
        observation, reward, terminated, truncated, info = result
        try:
            value = float(reward)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            self._blame(i, f"gave the reward {reward!r} for action {action}; it must be a finite number")
        self._returns[i] += value
        self._lengths[i] += 1
        return observation, value, bool(terminated), bool(truncated), info

    def _reset(self, i: int, seed: int | None) -> Any:
        try:
            result = self.environments[i].reset(seed=seed)
        except Exception as error:
            self._blame(i, f"raised {type(error).__name__} in reset: {error}", error)
        if not isinstance(result, tuple) or len(result) != 2:
            self._blame(i, "reset must return (observation, info)")
        return result[0]

    def _finish(self, i: int, info: Any) -> Episode:
        success = info.get("is_success") if isinstance(info, dict) else None
        episode = Episode(i, self._returns[i], self._lengths[i], None if success is None else bool(np.asarray(success)))
        self._returns[i], self._lengths[i] = 0.0, 0
        return episode

    def _stack(self, values: list[Any], call: str) -> Any:
        try:
            return self._stack_rows(values)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}, {call}: {error}") from None

    def _blame(self, i: int, what: str, cause: Exception | None = None) -> NoReturn:
        if isinstance(cause, RlsdkError):
            raise cause
        where = f"environment {self.name!r}" + (f" (number {i})" if self.num_envs > 1 else "")
        raise EnvironmentFault(f"{where} {what}") from cause

    def close(self) -> None:
        for environment in self.environments:
            environment.close()
