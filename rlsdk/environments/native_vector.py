"""A gymnasium vector environment in rlsdk's terms, for its same-step and next-step autoreset modes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
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
        self.timeout: float | None = None
        self._start()

    def _start(self) -> None:
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._resetting = np.zeros(self.num_envs, dtype=bool)

    @property
    def num_envs(self) -> int:
        return int(self.env.num_envs)

    def reset(self, seed: int | None = None) -> Observation:
        seeds: Any = None if seed is None else [derive(seed, "environment", i) % 2**31 for i in range(self.num_envs)]
        if seeds and not isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            seeds = seeds[0]  # environments that are vectors by themselves take one seed
        values, _ = self._ask(lambda: self.env.reset(seed=seeds))
        self._start()
        return Observation(self._stack(values), torch.ones(self.num_envs, dtype=torch.bool))

    def step(self, action: Tensor) -> EnvStep:
        actions = self._decode(action)
        values, rewards, terminations, truncations, infos = self._ask(lambda: self._step(actions))
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

    def _step(self, actions: Any) -> Any:
        if self.timeout is None or not isinstance(self.env, AsyncVectorEnv):
            return self.env.step(actions)
        self.env.step_async(actions)
        return self.env.step_wait(timeout=self.timeout)

    def _ask(self, call: Callable[[], Any]) -> Any:
        """The answer of the environment; whatever goes wrong on the way names the environment, and ends its processes."""
        try:
            return call()
        except (TimeoutError, multiprocessing.TimeoutError):
            self._end_processes()
            raise EnvironmentFault(f"environment {self.name!r} did not answer for {self.timeout} s; it hangs") from None
        except (EOFError, BrokenPipeError, ConnectionError):
            dead = self._dead()
            self._end_processes()
            raise EnvironmentFault(
                f"environment {self.name!r}: the process of {', '.join(dead) or 'a copy'} died"
            ) from None
        except Exception as error:
            self._end_processes()
            raise EnvironmentFault(f"environment {self.name!r} {error}") from error

    def _processes(self) -> list[tuple[int, Any]]:
        return list(enumerate(getattr(self.env, "processes", [])))

    def _dead(self) -> list[str]:
        """Processes that ended; a pipe may break some milliseconds before its process counts as dead."""
        for _ in range(100):
            dead = [f"number {i} (exit code {p.exitcode})" for i, p in self._processes() if not p.is_alive()]
            if dead:
                return dead
            time.sleep(0.01)
        return []

    def _end_processes(self) -> None:
        """Kill what is left; gymnasium's own closing would wait for answers that never come."""
        for _, process in self._processes():
            process.kill()
            process.join(1.0)
        for pipe in getattr(self.env, "parent_pipes", []):
            if pipe is not None:
                pipe.close()
        if self._processes():
            self.env.closed = True

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
