"""RecurrentPPO learns tasks that need memory. Thresholds leave room for unlucky seeds; the card in README.md has
measured results."""

from __future__ import annotations

from typing import Any

import pytest

from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_envs.toy import TMazeEnv
from rlsdk_recurrent_ppo import RecurrentPPO

NETWORKS: dict[str, Any] = {
    "ortho_init": False,
    "activation_fn": "relu",
    "lstm_hidden_size": 64,
    "net_arch": {"pi": [64], "vf": [64]},
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MlpGruPolicy"])
def test_a_cue_is_recalled(policy: str) -> None:
    env = make_vec_env(lambda: TMazeEnv(), 8, vectorization="sync")
    settings: dict[str, Any] = {"n_steps": 64, "batch_size": 128, "learning_rate": 1e-3, "gamma": 0.99, "seed": 0}
    model = RecurrentPPO(policy, env, policy_kwargs={"lstm_hidden_size": 32, "net_arch": [32]}, **settings)
    model.learn(60_000)
    result = run_episodes(model, make_vec_env(lambda: TMazeEnv(), 4, vectorization="sync"), 100, seed=5)
    assert result.success_rate is not None
    assert result.success_rate >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pendulum_without_velocities(seed: int) -> None:
    env = make_vec_env("rlsdk/PendulumNoVel-v1", 4, vectorization="sync")
    settings: dict[str, Any] = {"n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3, "use_sde": True}
    model = RecurrentPPO(
        "MlpLstmPolicy", env, normalize=True, sde_sample_freq=4, seed=seed, policy_kwargs=NETWORKS, **settings
    ).learn(100_000)
    assert run_episodes(model, "rlsdk/PendulumNoVel-v1", 50, seed=7).mean > -400.0
