"""A training that is stopped and goes on from a file equals one that never stopped, to the bit."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk import tree
from rlsdk.callbacks import Callback, CheckpointCallback
from rlsdk.environments import make_vec_env
from rlsdk.environments.states import OpaqueValue, capture, restore
from rlsdk.environments.toy import BitFlippingEnv, FakeImageEnv, SimpleMultiObsEnv, TMazeEnv
from rlsdk.errors import ArtifactError

REPLAY = {"learning_starts": 60, "buffer_size": 500}


class Log:
    """Keeps what is logged, without what depends on the clock."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def write(self, step: int, values: dict[str, float]) -> None:
        self.rows.append((step, {name: v for name, v in values.items() if not name.startswith("time/")}))

    def close(self) -> None: ...


class StopAtCheckpoint(Callback):
    def on_checkpoint(self, run: Any, path: Path) -> bool | None:
        return False


class WriteAtEnd(Callback):
    """So that there is something to compare where no episode ended."""

    def on_training_end(self, run: Any) -> bool | None:
        run.log()
        return None


class Secretive(gym.Env[Any, Any]):
    """Its position is hidden in an object nobody can look into."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    class Position:
        __slots__ = ("at", "steps")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = Secretive.Position()
        self.position.at, self.position.steps = float(self.np_random.uniform(-1, 1)), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.position.at = float(np.clip(self.position.at + 0.1 * float(action[0]), -1, 1))
        self.position.steps += 1
        return self._seen(), -abs(self.position.at), False, self.position.steps == 70, {}

    def _seen(self) -> Any:
        return np.array([self.position.at], np.float32)


def everything(agent: Any) -> dict[str, Any]:
    """Weights, optimisers, statistics, random streams and memories of an agent, flat."""
    state = {"policy": dict(agent.policy.state_dict()), "algorithm": agent.parts.algorithm.state_dict()}
    state["streams"] = agent.streams.state_dict()
    if agent.replay_buffer is not None:
        state["replay"] = agent.replay_buffer.state_dict()
    return tree.flatten(state)


def assert_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value, name


def assert_resumes(make: Callable[[], Any], make_env: Callable[[], Any], folder: Path, total: int, every: int) -> None:
    """Train in one go, and with a stop at the first checkpoint; nothing may tell the two apart."""
    whole, log = make(), Log()
    whole.set_logger(log)
    whole.learn(total, [CheckpointCallback(every, folder / "whole", keep=99), WriteAtEnd()], log_interval=1)
    first = make()
    first.learn(total, [CheckpointCallback(every, folder / "first", keep=99), StopAtCheckpoint()], log_interval=1)
    (path,) = (folder / "first").iterdir()
    resumed, later = type(whole).load(path, env=make_env(), force_reset=False), Log()
    stopped_at = resumed.num_timesteps
    assert 0 < stopped_at < total
    resumed.set_logger(later)
    rest = [CheckpointCallback(every, folder / "resumed"), WriteAtEnd()]
    resumed.learn(total - stopped_at, rest, log_interval=1, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    assert_equal(everything(resumed), everything(whole))
    assert later.rows == [row for row in log.rows if row[0] > stopped_at]
    assert later.rows, "nothing was logged, so nothing was compared"


CASES: dict[str, tuple[str, Any, int, int, dict[str, Any]]] = {
    "tqc": ("tqc", "Pendulum-v1", 420, 230, {**REPLAY, "batch_size": 16}),
    "tqc-mujoco": ("tqc", "HalfCheetah-v5", 200, 150, {**REPLAY, "batch_size": 16, "normalize": True}),
    "tqc-gsde": ("tqc", "Pendulum-v1", 420, 230, {**REPLAY, "batch_size": 16, "use_sde": True, "train_freq": 8}),
    "tqc-secretive": ("tqc", Secretive, 300, 230, {**REPLAY, "batch_size": 16, "normalize": True}),
    "tqc-secretive-shared": (
        "tqc",
        Secretive,
        300,
        230,
        {**REPLAY, "batch_size": 16, "optimize_memory_usage": True, "frame_stack": 2},
    ),
    "tqc-hindsight": (
        "tqc",
        lambda: BitFlippingEnv(4, continuous=True),
        200,
        130,
        {**REPLAY, "batch_size": 16, "policy": "MultiInputPolicy", "replay_buffer_class": "hindsight"},
    ),
    "qrdqn": ("qrdqn", "CartPole-v1", 300, 200, {**REPLAY, "batch_size": 16}),
    "qrdqn-images": (
        "qrdqn",
        lambda: FakeImageEnv(36, 1, action_space=gym.spaces.Discrete(3)),
        160,
        90,
        {**REPLAY, "batch_size": 8, "policy": "CnnPolicy", "frame_stack": 2, "optimize_memory_usage": True},
    ),
    "qrdqn-prioritized": (
        "qrdqn",
        "CartPole-v1",
        300,
        200,
        {**REPLAY, "batch_size": 16, "replay_buffer_class": "prioritized", "n_steps": 3},
    ),
    "ars": ("ars", "CartPole-v1", 1500, 500, {"policy": "LinearPolicy", "normalize": True, "n_delta": 2}),
    "trpo": ("trpo", "Pendulum-v1", 512, 256, {"n_steps": 64, "normalize": True}),
    "trpo-mujoco": ("trpo", "HalfCheetah-v5", 512, 256, {"n_steps": 64, "normalize": True}),
    "trpo-secretive": ("trpo", Secretive, 512, 256, {"n_steps": 64, "normalize": True, "frame_stack": 3}),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", 512, 256, {"n_steps": 64, "batch_size": 32}),
    "trpo-dict": ("trpo", lambda: SimpleMultiObsEnv(), 256, 128, {"n_steps": 32, "policy": "MultiInputPolicy"}),
    "recurrent-ppo": ("recurrent-ppo", "rlsdk/CartPoleNoVel-v1", 512, 256, {"n_steps": 64, "batch_size": 32}),
    "recurrent-ppo-maze": ("recurrent-ppo", lambda: TMazeEnv(), 512, 256, {"n_steps": 64, "batch_size": 32}),
}


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_stopped_and_resumed_equals_never_stopped(name: str, count: int, tmp_path: Path) -> None:
    algorithm, source, total, every, settings = CASES[name]

    def make_env() -> Any:
        return make_vec_env(source, count)

    def make() -> Any:
        return rlsdk.make(algorithm, env=make_env(), seed=7, **settings)

    assert_resumes(make, make_env, tmp_path, total, every)
