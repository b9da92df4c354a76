"""The same weights, batches and noise give the same losses and new weights as stable-baselines3's SAC."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rlsdk_sac import SAC
from rlsdk_sac.interchange import from_sb3
from tests.peer_updates import compare_updates, random_critics, random_settings, some_in_the_fast_suite

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng) | random_critics(rng)
    settings |= {
        "ent_coef": ("auto", "auto_0.1", 0.2)[rng.integers(3)],
        "target_entropy": ("auto", -3.0)[rng.integers(2)],
    }
    drawn = list[Tensor]()
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *a, **k: drawn.pop(0))

    def noise(generator: torch.Generator) -> None:
        drawn.extend(torch.randn(2, settings["batch_size"], 1, generator=generator))

    kinds = (SAC, stable_baselines3.SAC, from_sb3)
    compare_updates(kinds, "Pendulum-v1", settings, int(rng.integers(1, 8)), monkeypatch, noise)
    assert not drawn
