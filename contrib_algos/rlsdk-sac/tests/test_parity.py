"""The same weights, batches and noise give the same losses and new weights as stable-baselines3's SAC."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlsdk_sac import SAC
from rlsdk_sac.interchange import from_sb3
from tests.peer_updates import distance, rounding, some_in_the_fast_suite, transplant, updated

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {
        "learning_rate": float(10 ** rng.uniform(-4, -2)),
        "gamma": float(rng.uniform(0.5, 1.0)),
        "tau": float(rng.uniform(0.001, 1.0)),
        "batch_size": int(rng.integers(1, 65)),
        "ent_coef": rng.choice(["auto", "auto_0.1", "0.2"]).item(),
        "target_entropy": rng.choice(["auto", "-3.0"]).item(),
        "policy_kwargs": {"net_arch": [8, 12], "n_critics": int(rng.integers(1, 4))},
    }
    settings |= {name: float(settings[name]) for name in ("ent_coef", "target_entropy") if settings[name][0] != "a"}
    common = {"buffer_size": 100, "seed": 0, "device": "cpu", "learning_starts": 0}
    theirs = stable_baselines3.SAC("MlpPolicy", "Pendulum-v1", **common, **copy.deepcopy(settings))
    ours = SAC("MlpPolicy", "Pendulum-v1", **common, **settings)
    transplant(ours, theirs, from_sb3)
    count = int(rng.integers(1, 8))
    drawn = list[Tensor]()
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *a, **k: drawn.pop(0))

    def noise(generator: torch.Generator) -> None:
        drawn.extend(torch.randn(2, settings["batch_size"], 1, generator=generator))

    updated(ours, theirs, count, monkeypatch, noise=noise)
    assert distance(ours, theirs, from_sb3) < rounding(settings, count)
    assert not drawn
