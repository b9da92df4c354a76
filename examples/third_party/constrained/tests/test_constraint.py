"""Tests of exact resumption, of environments in other processes, and of the error for a missing cost."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest
import torch
from acme_constrained.environments import Sprint

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "cost_limit": 0.5, "initial_multiplier": 0.3, "seed": 0}


def test_stopping_in_mid_episode_changes_nothing(tmp_path: Path) -> None:
    whole, first = (rlsdk.make("ppo-lagrangian", env=Sprint(), **SMALL) for _ in range(2))
    whole.learn(256)
    first.learn(128).save(tmp_path / "half")
    second = rlsdk.load(tmp_path / "half", env=Sprint(), force_reset=False).learn(128, reset_num_timesteps=False)
    assert whole.parts.algorithm.state_dict()["multiplier"] == second.parts.algorithm.state_dict()["multiplier"]
    for mine, theirs in zip(whole.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("vectorization", ["async"])
def test_where_environments_run_changes_nothing(vectorization: str) -> None:
    found = []
    for kind in ("sync", vectorization):
        env = make_vec_env(Sprint, 2, vectorization=kind)
        model = rlsdk.make("ppo-lagrangian", env=env, **SMALL).learn(256)
        found.append([parameter.clone() for parameter in model.policy.parameters()])
        env.close()
    assert all(map(torch.equal, *found))


def test_an_environment_without_a_cost_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match=r"CartPole-v1.*gave no info\['cost'\]"):
        rlsdk.make("ppo-lagrangian", env=gymnasium.make("CartPole-v1"), **SMALL).learn(64)
