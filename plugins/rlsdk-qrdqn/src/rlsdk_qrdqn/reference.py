"""The loss of QR-DQN in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1710.10044)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_qrdqn.config import QRDQNConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: QRDQNConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the mean quantile Huber loss of the actions taken, 0-d, for one choice of an action."""
    online, target = networks["policy"], networks["algorithm.target.network"]
    following, rows, action = (
        batch.next_observation,
        torch.arange(len(batch.reward)),
        online.from_environment(batch.action),
    )
    if action.shape[-1] > 1:
        return {}  # several choices
    with torch.no_grad():
        quantiles = target.values(following.features)
        mean = (online.values(following.features) if config.double_q else quantiles).mean(-1)
        if following.action_mask is not None:
            mean = mean.masked_fill(~following.action_mask, -torch.inf)
        best = quantiles[rows, mean.argmax(-1)]
        wanted = batch.reward.unsqueeze(-1) + batch.discount.unsqueeze(-1) * best
    taken = online.values(batch.observation.features)[rows, action.squeeze(-1)]
    count = taken.shape[-1]
    share = (torch.arange(count, dtype=torch.float64).view(1, -1, 1) + 0.5) / count
    error = wanted.unsqueeze(1) - taken.unsqueeze(2)  # [N, quantile, target]
    huber = torch.where(error.abs() < 1.0, error.square() / 2, error.abs() - 0.5)
    loss = ((share - (error < 0.0).double()).abs() * huber).mean(2).sum(1)
    return {"algorithm.optimizer": (loss if batch.weight is None else loss * batch.weight).mean()}
