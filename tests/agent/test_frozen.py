"""Statistics and layers that users froze stay frozen: in files, and when an agent gets another number of environments."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, SettingsError, UsageError
from rlsdk.tree import flatten

CASES: dict[str, dict[str, Any]] = {
    "trpo": {"n_steps": 16, "batch_size": 8},
    "ppo": {"n_steps": 16, "batch_size": 8},
    "dqn": {"buffer_size": 200, "learning_starts": 10, "batch_size": 8},
    "acktr": {},
    "recurrent-ppo": {"n_steps": 16, "batch_size": 8},
    "ars": {"policy": "MlpPolicy", "n_delta": 2},
}


def made(algorithm: str, **settings: Any) -> Any:
    nets = {"policy_kwargs": {"net_arch": [4]}}
    return rlsdk.make(algorithm, env="CartPole-v1", seed=0, **nets, **CASES[algorithm], **settings)


def statistics(agent: Any) -> dict[str, Any]:
    return {
        name: value.clone() for name, value in flatten(agent.normalizer.state_dict()).items() if "returns" not in name
    }


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("algorithm", list(CASES))
def test_frozen_statistics_stay_frozen_in_a_file(algorithm: str) -> None:
    agent, file = made(algorithm, normalize=True).learn(32), io.BytesIO()
    agent.normalizer.training = False
    before = statistics(agent)
    agent.save(file)
    file.seek(0)
    loaded = type(agent).load(file, env="CartPole-v1")
    assert not loaded.normalizer.training
    loaded.learn(32, reset_num_timesteps=False)
    assert equal(statistics(loaded), before)


def test_one_of_two_statistics_is_frozen_in_a_file() -> None:
    agent, file = made("trpo", normalize=True).learn(32), io.BytesIO()
    agent.normalizer.observations.training = False
    agent.save(file)
    file.seek(0)
    assert type(agent).load(file).normalizer.frozen == {"observations": True, "rewards": False}


@pytest.mark.parametrize("frozen", [{"observations": 3, "rewards": True}, {"observations": True}, 7])
def test_a_damaged_entry_is_an_error_of_the_file(frozen: object, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, file = made("trpo", normalize=True), io.BytesIO()
    monkeypatch.setattr("rlsdk.agent.training_state.frozen_of", lambda _: frozen)
    agent.save(file)
    file.seek(0)
    with pytest.raises(ArtifactError):
        type(agent).load(file)


def test_frozen_statistics_stay_frozen_with_more_environments() -> None:
    agent = made("trpo", normalize=True).learn(32)
    agent.normalizer.training = False
    before = statistics(agent)
    agent.set_env(make_vec_env("CartPole-v1", 2))
    assert not agent.normalizer.training
    assert equal(statistics(agent.learn(32)), before)


@pytest.mark.parametrize("algorithm", CASES)
def test_frozen_layers_stay_frozen_with_more_environments(algorithm: str) -> None:
    agent = made(algorithm)
    layer = next(module for module in agent.policy.modules() if isinstance(module, nn.Linear))
    layer.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in agent.policy.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.set_env(make_vec_env("CartPole-v1", 2))
    assert [parameter.requires_grad for parameter in agent.policy.parameters()] == flags
    frozen = [(p, p.detach().clone()) for p in agent.policy.parameters() if not p.requires_grad]
    agent.learn(64)
    assert frozen
    assert all(torch.equal(parameter, before) for parameter, before in frozen)


def test_hooks_that_are_gone_are_named() -> None:
    agent = made("trpo")
    next(agent.policy.children()).register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="register the hooks again"):
        agent.set_env(make_vec_env("CartPole-v1", 2))


@pytest.mark.parametrize(("name", "value"), [("norm_reward", False), ("norm_obs", False), ("clip_obs", 1.0)])
def test_settings_of_a_normalizer_are_read_and_not_set(name: str, value: object) -> None:
    normalizer = copy.deepcopy(made("trpo", normalize=True).get_vec_normalize_env())
    assert getattr(normalizer, name) == getattr(normalizer.settings, name)
    with pytest.raises(UsageError, match=f"{name} is chosen when the agent is made"):
        setattr(normalizer, name, value)
    with pytest.raises(UsageError, match="no attribute 'norm_rewards' to set"):
        normalizer.norm_rewards = False
    with pytest.raises(AttributeError, match="no attribute 'norm_rewards'"):
        normalizer.norm_rewards  # noqa: B018
    normalizer.training = False
    assert not normalizer.training


@pytest.mark.parametrize("algorithm", ["dqn", "qrdqn"])
def test_the_exploration_rate_is_set(algorithm: str) -> None:
    agent = rlsdk.make(algorithm, env="CartPole-v1", **CASES["dqn"])
    agent.exploration_rate = 0.25
    assert agent.exploration_rate == 0.25
    with pytest.raises(SettingsError, match="outside"):
        agent.exploration_rate = 2.0
