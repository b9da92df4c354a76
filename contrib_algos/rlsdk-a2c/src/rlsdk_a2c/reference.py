"""The loss of A2C in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1602.01783)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_a2c.config import A2CConfig


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: A2CConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B], 0-d (section 4 and algorithm S3), for networks without memory."""
    network, steps = networks["policy"], batch.steps
    seen, following, action = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    starts = torch.ones(steps.reward.numel(), dtype=torch.bool)
    distribution, value = network.evaluate(seen, ((), ()), starts)
    with torch.no_grad():
        next_value = network.evaluate(following, ((), ()), starts)[1].view(steps.reward.shape)
        before = value.view(steps.reward.shape)
        if steps.extras.value is not None:  # the values when the actions were chosen
            before = steps.extras.value
            next_value[:-1] = torch.where((steps.terminated | steps.truncated)[:-1], next_value[:-1], before[1:])
        advantage, later = torch.zeros_like(before), torch.zeros_like(before[0])
        for t in reversed(range(len(before))):
            ended = steps.terminated[t] | steps.truncated[t]
            delta = steps.reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - before[t]
            later = delta + config.gamma * config.gae_lambda * later * ~ended
            advantage[t] = later
        advantage, target = advantage.flatten(), (advantage + before).flatten()
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action))
    rows = -advantage * log_prob + config.vf_coef * (target - value).square() - config.ent_coef * distribution.entropy()
    return {"algorithm.optimizer": rows.mean()}
