"""The same weights and rollouts give the same losses and new weights as stable-baselines3's A2C."""

from __future__ import annotations

import numpy as np
import pytest

from rlsdk_a2c import A2C
from tests.peer_actor_critic import LOSSES, assert_same_metrics, compare_an_update, random_settings
from tests.peer_updates import some_in_the_fast_suite

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_an_update_equals_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | {
        "use_rms_prop": bool(rng.integers(2)),
        "rms_prop_eps": float(10 ** rng.uniform(-6, -3)),
    }
    metrics, theirs = compare_an_update((A2C, stable_baselines3.A2C), seed, settings, monkeypatch)
    names = {name.replace("gradient_", ""): other.replace("gradient_", "") for name, other in LOSSES.items()}
    assert_same_metrics(metrics, theirs, names)
