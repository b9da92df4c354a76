"""`copy.deepcopy` of agents: a copy learns as the original would, and independently of it."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import pytest
import torch

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, UsageError
from rlsdk.registry.discovery import algorithms
from rlsdk_testing.subject import flat_state
from tests.callbacks.test_restoring import CASES, NOT_HERE, made


def assert_equal(one: Any, other: Any) -> None:
    second = flat_state(other)
    assert all(torch.equal(value, second[name]) for name, value in flat_state(one).items())


def assert_copy_continues(agent: Any, steps: int = 96) -> None:
    """Check that a copy, and a copy of the copy, learn as the original does, and that training one does not change
    the others."""
    one = copy.deepcopy(agent)
    two = copy.deepcopy(one)
    before = flat_state(agent)
    one.learn(steps, reset_num_timesteps=False)
    assert any(not torch.equal(value, before[name]) for name, value in flat_state(one).items())
    assert all(torch.equal(value, before[name]) for name, value in flat_state(agent).items())
    for each in (agent, two):
        each.learn(steps, reset_num_timesteps=False)
        assert each.num_timesteps == one.num_timesteps
        assert_equal(each, one)


@pytest.mark.parametrize("algorithm", CASES)
@pytest.mark.parametrize("trained", [False, True])
def test_copies_learn(algorithm: str, trained: bool) -> None:
    agent = made(algorithm)
    assert_copy_continues(agent.learn(96) if trained else agent)


def test_candidates() -> None:
    assert_copy_continues(rlsdk.make("ars", env="CartPole-v1", seed=0, n_delta=2).learn(500), 500)
    assert set(CASES) | set(NOT_HERE) >= {
        plugin.id for plugin in algorithms() if plugin.distribution.startswith("rlsdk-")
    }


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo", {"normalize": True}),
        ("ppo", {"use_sde": True}),
        ("sac", {"normalize": True, "replay_buffer_class": "prioritized"}),
        ("sac", {"frame_stack": 2, "n_steps": 3}),
    ],
)
def test_settings(algorithm: str, settings: dict[str, Any]) -> None:
    assert_copy_continues(made(algorithm, **settings).learn(96))


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_several_environments(vectorization: str) -> None:
    env = make_vec_env("CartPole-v1", 3, vectorization=vectorization)
    assert_copy_continues(rlsdk.make("ppo", env=env, seed=0, n_steps=16, batch_size=16).learn(96))


def test_an_environment_of_the_user() -> None:
    env = gymnasium.make("CartPole-v1")
    agent: Any = rlsdk.make("dqn", env=env, seed=0, learning_starts=20, buffer_size=500).learn(100)
    other = copy.deepcopy(agent).learn(50, reset_num_timesteps=False)
    assert other.get_env() is not agent.get_env()
    agent.learn(50, reset_num_timesteps=False)
    assert_equal(agent, other)


def test_without_an_environment(tmp_path: Any) -> None:
    made("ppo").learn(32).save(tmp_path / "agent")
    loaded = rlsdk.load(tmp_path / "agent")
    assert_equal(copy.deepcopy(loaded), loaded)


def test_a_class_of_the_user() -> None:
    from rlsdk_ppo import PPO

    class Mine(PPO):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    agent = Mine("MlpPolicy", "CartPole-v1", seed=0, n_steps=32, batch_size=32)
    assert type(copy.deepcopy(agent)) is Mine


def test_environments_in_processes_are_refused() -> None:
    env = make_vec_env("CartPole-v1", 2, vectorization="async", workers=2)
    agent = rlsdk.make("ppo", env=env, seed=0, n_steps=16, batch_size=16)
    with pytest.raises(UsageError, match="environment cannot be copied"):
        copy.deepcopy(agent)
    agent.learn(32)
    env.close()


def test_a_copy_only_acts() -> None:
    """The copy has the policy, its statistics and other settings, but neither the environment nor memory of the agent."""
    agent: Any = rlsdk.make("ppo", env="CartPole-v1", seed=0, n_steps=32, normalize=True).learn(64)
    before, seen = flat_state(agent), agent.get_env().reset()
    copy_ = agent.acting_copy(policy_kwargs={"kernel": "autograd"})
    assert (copy_.env, copy_.env_name, copy_.seed, type(copy_)) == (None, "CartPole-v1", agent.seed, type(agent))
    assert copy_.config.policy_kwargs.kernel == "autograd"
    assert (copy_.predict(seen, deterministic=True)[0] == agent.predict(seen, deterministic=True)[0]).all()
    with torch.no_grad():
        for parameter in copy_.policy.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in flat_state(agent).items())
    with pytest.raises(ArtifactError, match="the policy does not fit the settings of its copy"):
        agent.acting_copy(policy_kwargs={"net_arch": [8]})
