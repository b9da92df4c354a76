"""The same weights and rollouts give the same losses and new weights as stable-baselines3's PPO."""

from __future__ import annotations

import numpy as np
import pytest

from rlsdk_ppo import PPO
from tests.peer_actor_critic import LOSSES, assert_same_metrics, compare_an_update, random_settings
from tests.peer_updates import some_in_the_fast_suite

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_an_update_equals_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | {
        "batch_size": int(rng.integers(5, 41)),
        "n_epochs": int(rng.integers(1, 4)),
        "clip_range": float(rng.uniform(0.05, 0.4)),
        "clip_range_vf": rng.choice([None, 0.1]),
        "target_kl": rng.choice([None, 1e-3]),
    }
    metrics, theirs = compare_an_update((PPO, stable_baselines3.PPO), seed, settings, monkeypatch)
    stopped = settings["target_kl"] is not None  # the peer leaves the stopping minibatch out of some means
    assert_same_metrics(metrics, theirs, LOSSES, atol=0.05 if stopped else 1e-4)
