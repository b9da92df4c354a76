"""The same weights, batches and noise give the same losses and new weights as stable-baselines3's DDPG."""

from __future__ import annotations

import numpy as np
import pytest

from rlsdk_ddpg import DDPG
from rlsdk_ddpg.interchange import from_sb3
from tests.peer_updates import compare_updates, random_critics, random_settings, some_in_the_fast_suite, target_noise

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | random_critics(rng)
    noise = target_noise(settings["batch_size"], monkeypatch)
    kinds = (DDPG, stable_baselines3.DDPG, from_sb3)
    compare_updates(kinds, "Pendulum-v1", settings, int(rng.integers(1, 8)), monkeypatch, noise)
