"""Vector environments: in this process, in others, and native vector environments."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.environments.vector.native_vector import NativeVectorEnv
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError
from rlsdk_envs import load_results
from rlsdk_envs.toy import ChainEnv, IdentityEnvBox
from rlsdk_parallel.process_vector import ProcessVectorEnv
from rlsdk_tqc import TQC


class Slow(ChainEnv):
    def __init__(self, seconds: float = 0.002) -> None:
        super().__init__(length=50)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


def test_the_rule_takes_processes_for_slow_steps_only() -> None:
    fast, slow = make_vec_env("Pendulum-v1", 2), make_vec_env(Slow, 2)
    assert isinstance(fast, SyncVectorEnv)
    assert isinstance(slow, ProcessVectorEnv) == ((os.cpu_count() or 1) > 1)
    assert isinstance(make_vec_env(Slow, 1), SyncVectorEnv)
    slow.close()


def test_an_environment_may_refuse_processes() -> None:
    """Such as one whose library does not survive a fork."""
    staying = type("Staying", (Slow,), {"in_one_process": True})
    assert isinstance(make_vec_env(staying, 2), SyncVectorEnv)


def test_a_daemon_may_start_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a worker of `multiprocessing.Pool`."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert isinstance(make_vec_env(Slow, 2), SyncVectorEnv)
    with pytest.raises(UsageError, match=r"this process is a daemon, such as a worker of multiprocessing\.Pool"):
        make_vec_env("Pendulum-v1", 2, vectorization="async")


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
    with pytest.raises(
        EnvironmentFault, match=r"'CartPole-v1' could not be made: it raised TypeError: .*no_such_argument"
    ):
        make_vec_env("CartPole-v1", 2, vectorization="native", env_kwargs={"no_such_argument": 1})


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
    with pytest.raises(SettingsError, match=r"unknown wrapper 'TimeFeatures'.*; did you mean 'TimeFeature'"):
        make_vec_env("Pendulum-v1", wrappers=["TimeFeatures"])
    with pytest.raises(SettingsError, match="neither a name nor a function"):
        make_vec_env("Pendulum-v1", wrappers=[3])  # type: ignore[list-item]
    assert make_vec_env("Pendulum-v1", wrappers=["TimeFeature", "ClipAction"]).observation_space.shape == (4,)  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match="n_envs = 0 must be a positive"):
        make_vec_env("Pendulum-v1", 0)
    with pytest.raises(EnvironmentFault, match="did you mean 'Pendulum-v1'"):
        make_vec_env("Pendulun-v1", 2, vectorization="async")


@pytest.mark.parametrize("kind", ["sync", "async", "gymnasium"])
def test_attributes_and_methods_of_environments(kind: str) -> None:
    from gymnasium.vector import SyncVectorEnv
    from gymnasium.wrappers import TimeLimit

    from rlsdk.environments import connect

    def make() -> Any:
        return TimeLimit(ChainEnv(length=7), 3)

    env: Any = connect(SyncVectorEnv([make] * 3)) if kind == "gymnasium" else make_vec_env(make, 3, vectorization=kind)
    env.reset(0)
    assert env.get_attr("length") == [7, 7, 7]
    env.set_attr("length", 2, indices=[0, 2])
    assert env.get_attr("length") == [2, 7, 2]
    assert env.get_attr("length", indices=[2, 1]) == [2, 7]
    assert env.get_attr("length", 1) == [7]
    assert env.env_method("terminates", 1) == env.env_method("terminates", episode=1)
    assert len(env.env_method("terminates", 1, indices=[1])) == 1
    if kind != "gymnasium":
        with pytest.raises(SettingsError, match="no environment number 3; there are 3"):
            env.get_attr("length", 3)
        with pytest.raises(EnvironmentFault, match="has no attribute 'lenght'"):
            env.get_attr("lenght")
    env.close()


def test_a_seed_given_when_making_them() -> None:
    def first(env: Any) -> torch.Tensor:
        return env.reset().features

    one, two = (make_vec_env("Pendulum-v1", 2, seed=5) for _ in range(2))
    assert torch.equal(first(one), first(two))
    assert not torch.equal(first(one), first(make_vec_env("Pendulum-v1", 2, seed=6)))
    assert not torch.equal(one.reset().features, make_vec_env("Pendulum-v1", 2, seed=5).reset().features)

    def start(**settings: Any) -> torch.Tensor:
        agent = TQC(
            "MlpPolicy", make_vec_env("Pendulum-v1", 2, seed=5), buffer_size=10, learning_starts=100, **settings
        )
        agent.learn(2)
        return agent.parts.buffer.at(torch.tensor([0, 1])).observation.features  # type: ignore[union-attr]

    assert torch.equal(start(), start())  # an agent without a seed uses the seed of the environments
    assert not torch.equal(start(), start(seed=1))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_spaces_that_change_between_resets_are_noticed(kind: str) -> None:
    class Growing(ChainEnv):
        def _observation(self) -> Any:
            return np.zeros(2 + (self.episode > 0), np.float32)

    env = make_vec_env(lambda: Growing(3), 2, vectorization=kind)
    env.reset(0)

    def play() -> None:
        for _ in range(4):
            env.step(torch.zeros(2, 1))

    with pytest.raises(
        EnvironmentFault, match=r"(?s)'Growing'.*reset: observation of environment 0 has shape \(3,\), but"
    ):
        play()
    env.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_rewards_that_are_no_numbers_are_noticed(kind: str) -> None:
    class Odd(ChainEnv):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return (observation, self.odd, *rest)

    for odd, words in ((float("nan"), "nan"), (1e39, r"1e\+39"), ("much", "'much'"), (None, "None")):
        env = make_vec_env(lambda value=odd: setattr(e := Odd(3), "odd", value) or e, 2, vectorization=kind)
        env.reset(0)
        with pytest.raises(EnvironmentFault, match=rf"'Odd' \(number 0\) gave the reward {words}"):
            env.step(torch.zeros(2, 1))
        env.close()
