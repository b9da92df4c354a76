"""Augmented random search in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1803.07055)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk_ars.config import ARSConfig
from rlsdk_ars.population import Scored


def after(networks: Mapping[str, Any], batch: Scored, config: ARSConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the candidates, and the parameters [D] after an update in the middle of the training (algorithm 1)."""
    center, deltas = networks["algorithm.memory.values"], networks["algorithm.deltas"]
    spread = config.delta_std(0.5) * noise
    candidates = torch.stack([center + spread] * config.n_delta + [center - spread] * config.n_delta)
    plus, minus = batch.score.tensor_split(2)
    used = config.n_delta if config.n_top is None else config.n_top
    best = sorted(range(len(plus)), key=lambda k: -max(float(plus[k]), float(minus[k])))[:used]
    deviation = torch.cat([plus[best], minus[best]]).std()
    direction = sum((plus[k] - minus[k]) * deltas[k] for k in best) / (len(best) * deviation + 1e-6)
    return {"candidates": candidates, "algorithm.memory.values": center + config.learning_rate(0.5) * direction}
