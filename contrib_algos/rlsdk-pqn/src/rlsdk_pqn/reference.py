"""The loss of PQN in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2407.04811)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Observation, Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_pqn.config import PQNConfig


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: PQNConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B] that is one minibatch, 0-d, for one choice of an action."""
    network, steps = networks["policy"], batch.steps
    seen, following, action = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    values = network(seen.features)
    chosen = network.from_environment(action)
    if chosen.shape[-1] > 1:
        return {}  # several choices
    taken = values.gather(-1, chosen).view(steps.reward.shape)
    with torch.no_grad():
        best = _best(network, following).view(steps.reward.shape)
        target = torch.zeros_like(best)
        for t in reversed(range(len(best))):
            later = best[t]
            if t + 1 < len(best):
                goes_on = ~(steps.terminated[t] | steps.truncated[t])
                mixed = (1.0 - config.q_lambda) * best[t] + config.q_lambda * target[t + 1]
                later = torch.where(goes_on, mixed, best[t])
            target[t] = steps.reward[t] + config.gamma * later * ~steps.terminated[t]
    return {"algorithm.optimizer": ((taken - target).square() / 2).mean()}


def _best(network: Any, observation: Observation) -> Tensor:
    """The largest allowed value of each observation, [N]."""
    values: Tensor = network(observation.features)
    mask = observation.action_mask
    return (values if mask is None else values.masked_fill(~mask, -torch.inf)).max(-1).values
