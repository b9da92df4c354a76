"""The search in plain formulas, for the clause `formula.reference` of the contract kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acme_cross_entropy.config import CrossEntropyConfig
from rlsdk_ars import Scored


def after(networks: Mapping[str, Any], batch: Scored, config: CrossEntropyConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the candidates, and mean and deviation after an update in the middle of the training."""
    mean, std = networks["algorithm.mean"], networks["algorithm.std"]
    best = torch.argsort(batch.score, descending=True)[: config.elites]
    chosen = batch.parameters[best]
    fitted = chosen.sum(0) / len(chosen)
    variance = (chosen - fitted).square().sum(0) / len(chosen)
    return {
        "candidates": (mean + std * noise).expand(config.candidates, -1),
        "algorithm.mean": fitted,
        "algorithm.std": variance.sqrt() + 0.5 * config.extra_std,
    }
