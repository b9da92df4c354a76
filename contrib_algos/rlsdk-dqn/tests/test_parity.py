"""The same weights and batches give the same losses and new weights as stable-baselines3's DQN."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from rlsdk_dqn import DQN
from rlsdk_dqn.interchange import from_sb3
from tests.peer_updates import distance, rounding, some_in_the_fast_suite, transplant, updated

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "gamma": float(rng.uniform(0.5, 1.0)),
        "batch_size": int(rng.integers(1, 65)),
        "max_grad_norm": float(rng.choice([0.1, 10.0])),
        "policy_kwargs": {"net_arch": [int(width) for width in rng.integers(4, 20, rng.integers(1, 3))]},
    }
    common = {"buffer_size": 100, "seed": 0, "device": "cpu", "learning_starts": 0}
    theirs = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", **common, **copy.deepcopy(settings))
    ours = DQN("MlpPolicy", "CartPole-v1", **common, **settings)
    transplant(ours, theirs, from_sb3)
    count = int(rng.integers(1, 8))
    updated(ours, theirs, count, monkeypatch)
    assert distance(ours, theirs, from_sb3) < rounding(settings, count)
