"""The loss of DQN in plain formulas, for the clause `formula.reference` of the contract kit (doi:10.1038/nature14236)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_dqn.config import DQNConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: DQNConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the mean Huber loss of the values of the actions taken, 0-d, for one choice of an action."""
    online, target = networks["policy"], networks["algorithm.target.network"]
    following, action = batch.next_observation, online.from_environment(batch.action)
    if action.shape[-1] > 1:
        return {}  # several choices
    with torch.no_grad():
        values = target(following.features)
        chooser = online(following.features) if config.double_q else values
        if following.action_mask is not None:
            chooser = chooser.masked_fill(~following.action_mask, -torch.inf)
        best = values.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
        wanted = batch.reward + batch.discount * best
    error = online(batch.observation.features).gather(-1, action).squeeze(-1) - wanted
    huber = torch.where(error.abs() < 1.0, error.square() / 2, error.abs() - 0.5)
    return {"algorithm.optimizer": (huber if batch.weight is None else huber * batch.weight).mean()}
