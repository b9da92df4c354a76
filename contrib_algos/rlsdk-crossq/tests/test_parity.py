"""The same weights, batches and noise give the same losses and new weights as sb3-contrib's CrossQ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rlsdk_crossq import CrossQ
from rlsdk_crossq.interchange import from_sb3
from tests.peer_updates import compare_updates, random_settings, some_in_the_fast_suite

distributions = pytest.importorskip("stable_baselines3.common.distributions")
sb3_contrib = pytest.importorskip("sb3_contrib")


def _exact_log_prob(self: Any, actions: Tensor, before: Tensor) -> Tensor:
    """The log-densities [N] of actions whose values before tanh are `before` [N, A]."""
    jacobian = 2.0 * (math.log(2.0) - before - softplus(-2.0 * before))
    log_prob: Tensor = distributions.DiagGaussianDistribution.log_prob(self, before)
    return log_prob - jacobian.sum(1)


def _compare(settings: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Require equal losses and weights, running statistics included, after `count` updates."""
    drawn, rows, updates = list[Tensor](), settings["batch_size"], 0
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *a, **k: drawn.pop(0))
    # the peer adds 1e-6 in the logarithm; actions of normalized networks are so large that this shows
    monkeypatch.setattr(distributions.SquashedDiagGaussianDistribution, "log_prob", _exact_log_prob)

    def noise(generator: torch.Generator) -> None:
        nonlocal updates
        updates += 1
        trains_actor = updates % settings["policy_delay"] == 0
        drawn.extend(torch.randn(1 + trains_actor, rows, 1, generator=generator))

    compare_updates((CrossQ, sb3_contrib.CrossQ, from_sb3), "Pendulum-v1", settings, count, monkeypatch, noise)
    assert not drawn


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_the_peers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    networks = {
        "net_arch": ([8, 12], {"pi": [8], "qf": [12, 8]}, [])[rng.integers(3)],
        "n_critics": int(rng.integers(1, 4)),
        "batch_norm": bool(rng.random() < 0.8),
        "batch_norm_momentum": float(rng.uniform(0.001, 1.0)),
        "batch_norm_eps": float(10 ** rng.uniform(-3, -1)),
        # within the updates of the test, so that running statistics correct the last ones
        "renorm_warmup_steps": int(rng.integers(4)),
        # normalization removes the bias of a unit that is active in all rows: its gradient is a rounding error, which Adam
        # would divide by its own size
        "optimizer_kwargs": {"betas": (0.5, 0.999), "eps": 1e-3},
    }
    settings = random_settings(rng) | {
        "batch_size": int(rng.integers(8, 65)),
        "ent_coef": ("auto", "auto_0.1", 0.2)[rng.integers(3)],
        "target_entropy": ("auto", -3.0)[rng.integers(2)],
        "policy_delay": int(rng.integers(1, 4)),
        "policy_kwargs": networks,
    }
    _compare(settings, int(rng.integers(1, 8)), monkeypatch)


@pytest.mark.parametrize("count", [1, 5, 50])
@pytest.mark.parametrize("warm_up", [0, 20, 100_000])
def test_many_updates_equal_the_peers(count: int, warm_up: int, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = {"net_arch": {"pi": [16, 16], "qf": [32, 32]}, "renorm_warmup_steps": warm_up}
    settings = {"learning_rate": 1e-3, "gamma": 0.99, "batch_size": 32, "policy_delay": 3, "policy_kwargs": networks}
    _compare(settings, count, monkeypatch)
