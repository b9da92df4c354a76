"""The same weights, batches and noise give the same losses and new weights as stable-baselines3's TD3."""

from __future__ import annotations

import numpy as np
import pytest

from rlsdk_td3 import TD3
from rlsdk_td3.interchange import from_sb3
from tests.peer_updates import compare_updates, random_critics, random_settings, some_in_the_fast_suite, target_noise

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | random_critics(rng)
    settings |= {
        "policy_delay": int(rng.integers(1, 4)),
        "target_policy_noise": float(rng.uniform(0.0, 1.0)),
        "target_noise_clip": float(rng.uniform(0.0, 1.0)),
    }
    noise = target_noise(settings["batch_size"], monkeypatch)
    kinds = (TD3, stable_baselines3.TD3, from_sb3)
    compare_updates(kinds, "Pendulum-v1", settings, int(rng.integers(1, 8)), monkeypatch, noise)
