"""TRPO learns. Thresholds leave room for unlucky seeds; the card in README.md has the measured results."""

from __future__ import annotations

import pytest

from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_envs.toy import IdentityEnv
from rlsdk_trpo import TRPO


def test_identity_is_learned() -> None:
    model = TRPO("MlpPolicy", IdentityEnv(4), gamma=0.4, n_steps=512, target_kl=0.05, seed=0).learn(8192)
    assert run_episodes(model, IdentityEnv(4), 5, seed=1).mean > 95.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cart_pole(seed: int) -> None:
    env = make_vec_env("CartPole-v1", 2, vectorization="sync")
    model = TRPO("MlpPolicy", env, seed=seed).learn(100_000)
    assert run_episodes(model, "CartPole-v1", 50, seed=9).mean >= 475.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pendulum(seed: int) -> None:
    env = make_vec_env("Pendulum-v1", 2, vectorization="sync")
    settings = {"n_steps": 1024, "gamma": 0.9, "n_critic_updates": 15}
    model = TRPO("MlpPolicy", env, use_sde=True, sde_sample_freq=4, seed=seed, **settings).learn(100_000)
    assert run_episodes(model, "Pendulum-v1", 50, seed=9).mean > -250.0
