"""A gymnasium vector environment in rlsdk's terms, for its same-step and next-step autoreset modes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.observations import Stacker, batch_of
from rlsdk.errors import EnvironmentFault, ObservationError
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.seeding import derive
from rlsdk.spaces import Space


class NativeVectorEnv:
    """Wraps a `gymnasium.vector.VectorEnv`.

    Next-step autoreset gives one filler row per episode, in which the action is ignored: it is marked `valid = False`.
    """

    def __init__(
        self, env: gymnasium.vector.VectorEnv[Any, Any, Any], observation_space: Space, action_space: Space
    ) -> None:
        self.env, self.observation_space, self.action_space = env, observation_space, action_space
        self.name = env.spec.id if env.spec is not None else type(env).__name__
        self.mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self.mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentFault(f"{self.name!r} has autoreset mode {self.mode}; rlsdk needs NEXT_STEP or SAME_STEP")
        self._decode, self._stack_rows = ActionDecoder(action_space), Stacker(observation_space)
        self._start()

    def _start(self) -> None:
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._resetting = np.zeros(self.num_envs, dtype=bool)

    @property
    def num_envs(self) -> int:
        return int(self.env.num_envs)

    def reset(self, seed: int | None = None) -> Observation:
        seeds: Any = None if seed is None else [derive(seed, "environment", i) % 2**31 for i in range(self.num_envs)]
        values, _ = self.env.reset(seed=seeds)
        self._start()
        return Observation(self._stack(values), torch.ones(self.num_envs, dtype=torch.bool))

    def step(self, action: Tensor) -> EnvStep:
        values, rewards, terminations, truncations, infos = self.env.step(self._decode(action))
        if not np.isfinite(rewards).all():
            raise EnvironmentFault(f"environment {self.name!r} gave the rewards {rewards}; they must be finite")
        filler = self._resetting.copy()
        reward = np.where(filler, 0.0, rewards)
        terminated, truncated = terminations & ~filler, truncations & ~filler
        ended = terminated | truncated
        self._returns += reward
        self._lengths += ~filler
        features, final = self._stack(values), None
        if ended.any():
            final = Observation(self._finals(values, infos, ended), torch.zeros(int(ended.sum()), dtype=torch.bool))
        same_step = self.mode == AutoresetMode.SAME_STEP
        is_first = torch.from_numpy(ended.copy() if same_step else filler)
        self._resetting = ended & (not same_step)
        return EnvStep(
            Observation(features, is_first),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(terminated),
            torch.from_numpy(truncated),
            torch.from_numpy(~filler),
            final,
            self._finish(ended, infos),
        )

    def _finals(self, values: Any, infos: dict[str, Any], ended: Any) -> Any:
        rows = np.flatnonzero(ended)
        if self.mode == AutoresetMode.SAME_STEP:
            source = infos["final_obs"]
            return self._stack_rows([source[i] for i in rows])
        batch, _ = batch_of(self.observation_space, values)
        return self._stack_rows([batch[i] for i in rows])

    def _finish(self, ended: Any, infos: dict[str, Any]) -> tuple[Episode, ...]:
        success = (
            infos.get("final_info", infos).get("is_success")
            if self.mode == AutoresetMode.SAME_STEP
            else infos.get("is_success")
        )
        episodes = []
        for i in np.flatnonzero(ended):
            value = None if success is None else bool(np.asarray(success)[i])
            episodes.append(Episode(int(i), float(self._returns[i]), int(self._lengths[i]), value))
            self._returns[i], self._lengths[i] = 0.0, 0
        return tuple(episodes)

    def _stack(self, values: Any) -> Any:
        try:
            rows, _ = batch_of(self.observation_space, values)
            return self._stack_rows(rows)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}: {error}") from None

    def close(self) -> None:
        self.env.close()
