"""ARS learns. Thresholds leave room for unlucky seeds; the card in README.md has the measured results."""

from __future__ import annotations

import pytest

from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_ars import ARS


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cart_pole(seed: int) -> None:
    model = ARS("LinearPolicy", "CartPole-v1", seed=seed).learn(50_000)
    assert run_episodes(model, "CartPole-v1", 20, seed=9).mean >= 400.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_swimmer(seed: int) -> None:
    pytest.importorskip("mujoco")
    model = ARS("LinearPolicy", "Swimmer-v5", n_delta=4, learning_rate=0.02, delta_std=0.02, seed=seed).learn(2_000_000)
    assert run_episodes(model, "Swimmer-v5", 5, seed=9).mean >= 300.0
