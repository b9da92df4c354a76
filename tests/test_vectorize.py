"""Several environments: in this process, in processes that may crash or hang, and native vector environments."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.environments import load_results, make_vec_env
from rlsdk.environments.in_process import InProcessEnvs
from rlsdk.environments.native_vector import NativeVectorEnv
from rlsdk.environments.processes import ProcessEnvs
from rlsdk.environments.toy import ChainEnv, IdentityEnvBox
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk_tqc import TQC


def transitions(env: Any, steps: int = 230) -> list[torch.Tensor]:
    """What fixed actions lead to from a fixed seed."""
    generator = torch.Generator().manual_seed(1)
    rows = [env.reset(seed=11).features]
    for _ in range(steps):
        step = env.step(torch.rand(env.num_envs, 1, generator=generator) * 4 - 2)
        rows += [step.observation.features, step.reward, step.terminated, step.truncated, step.observation.is_first]
        rows += [] if step.final_observation is None else [step.final_observation.features]
    env.close()
    return rows


def test_processes_give_the_same_as_this_process() -> None:
    one, two = (transitions(make_vec_env("Pendulum-v1", 2, vectorization=kind)) for kind in ("sync", "async"))
    assert len(one) == len(two)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_training_is_the_same_to_the_bit_either_way() -> None:
    weights = []
    for kind in ("sync", "async"):
        env = make_vec_env("Pendulum-v1", 2, vectorization=kind)
        settings = {"buffer_size": 500, "learning_starts": 20, "batch_size": 16, "seed": 3}
        model = TQC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **settings).learn(420)
        weights.append(torch.cat([v.flatten() for v in model.get_parameters()["policy"].values()]))
        env.close()
    assert torch.equal(*weights)


class Slow(ChainEnv):
    def __init__(self, seconds: float = 0.002) -> None:
        super().__init__(length=50)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


class Breaking(ChainEnv):
    """Misbehaves at its fourth step."""

    def __init__(self, how: str) -> None:
        super().__init__(length=50)
        self.how = how

    def step(self, action: Any) -> Any:
        if self.position == 3:
            if self.how == "raise":
                return self.somewhere_deep()
            if self.how == "hang":
                time.sleep(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def somewhere_deep(self) -> Any:
        raise ZeroDivisionError("wheel came off")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", r"(?s)raised ZeroDivisionError in step.*wheel came off.*--- in its process ---.*somewhere_deep"),
        ("kill", r"the process of number [01] died \(exit code -9\)"),
        ("hang", r"did not answer for 1\.0 s"),
    ],
)
def test_a_process_that_fails_is_an_error_within_two_seconds(how: str, words: str) -> None:
    env = make_vec_env(lambda: Breaking(how), 2, vectorization="async", timeout=1.0)
    assert isinstance(env, ProcessEnvs)
    env.reset(seed=0)
    for _ in range(3):
        env.step(torch.zeros(2, 1))
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match=words):
        env.step(torch.zeros(2, 1))
    assert time.monotonic() - began < 10.0  # measured: under 1.2 s
    assert not any(process.is_alive() for process in env.processes)


def test_a_worker_killed_from_outside() -> None:
    env = make_vec_env("Pendulum-v1", 2, vectorization="async")
    assert isinstance(env, ProcessEnvs)
    env.reset(seed=0)
    os.kill(env.processes[1].pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match=r"number 1 died \(exit code -9\)"):
        transitions(env, steps=3)


def test_the_rule_takes_processes_for_slow_steps_only() -> None:
    fast, slow = make_vec_env("Pendulum-v1", 2), make_vec_env(Slow, 2)
    assert isinstance(fast, InProcessEnvs)
    assert isinstance(slow, ProcessEnvs) == ((os.cpu_count() or 1) > 1)
    assert isinstance(make_vec_env(Slow, 1), InProcessEnvs)
    slow.close()


def test_native_vector_environments() -> None:
    env = make_vec_env("CartPole-v1", 3, vectorization="native")
    assert isinstance(env, NativeVectorEnv)
    env.reset(seed=0)
    episodes = [e for _ in range(60) for e in env.step(torch.ones(3, dtype=torch.int64)).episodes]
    assert len(episodes) > 6
    assert all(e.episode_return == e.length for e in episodes)
    with pytest.raises(EnvironmentFault, match="no vector version"):
        make_vec_env("Pendulum-v1", 2, vectorization="native")
    with pytest.raises(SettingsError, match="gymnasium id"):
        make_vec_env(ChainEnv, 2, vectorization="native")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_wrappers_arguments_and_monitors_reach_every_copy(kind: str, tmp_path: Path) -> None:
    from gymnasium.wrappers import TimeLimit

    def shorten(env: Any) -> Any:
        return TimeLimit(env, 3)

    options: dict[str, Any] = {"env_kwargs": {"high": 5.0}, "wrappers": [shorten], "monitor_dir": tmp_path}
    env = make_vec_env(IdentityEnvBox, 2, vectorization=kind, **options)
    assert float(np.max(env.action_space.high)) == 5.0  # type: ignore[union-attr]
    env.reset(seed=0)
    lengths = [e.length for _ in range(6) for e in env.step(torch.zeros(2, 1)).episodes]
    env.close()
    assert lengths == [3] * 4
    assert load_results(tmp_path)["l"] == [3.0] * 4


def test_bad_arguments() -> None:
    with pytest.raises(SettingsError, match="did you mean 'async'"):
        make_vec_env("Pendulum-v1", 2, vectorization="asynk")
    with pytest.raises(EnvironmentFault, match="did you mean 'Pendulum-v1'"):
        make_vec_env("Pendulun-v1", 2, vectorization="async")
