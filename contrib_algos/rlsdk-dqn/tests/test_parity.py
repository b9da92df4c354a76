"""The same weights and batches give the same losses and new weights as stable-baselines3's DQN."""

from __future__ import annotations

import numpy as np
import pytest

from rlsdk_dqn import DQN
from rlsdk_dqn.interchange import from_sb3
from tests.peer_updates import compare_updates, random_settings, some_in_the_fast_suite

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | {
        "max_grad_norm": float(rng.choice([0.1, 10.0])),
        "policy_kwargs": {"net_arch": [int(width) for width in rng.integers(4, 20, rng.integers(1, 3))]},
    }
    kinds = (DQN, stable_baselines3.DQN, from_sb3)
    compare_updates(kinds, "CartPole-v1", settings, int(rng.integers(1, 8)), monkeypatch)
