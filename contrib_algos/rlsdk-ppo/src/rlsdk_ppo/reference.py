"""The loss of PPO in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_ppo.config import PPOConfig


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: PPOConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B] that is one minibatch, 0-d, for networks without memory."""
    network, steps = networks["policy"], batch.steps
    old, reward, remaining = network.estimates(steps), steps.reward, 0.5
    seen, following, action = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    starts = torch.ones(reward.numel(), dtype=torch.bool)
    distribution, value = network.evaluate(seen, ((), ()), starts)
    with torch.no_grad():
        before = value.view(reward.shape) if old.value is None else old.value  # when the actions were chosen
        next_value = network.evaluate(following, ((), ()), starts)[1].view(reward.shape)
        next_value[:-1] = torch.where((steps.terminated | steps.truncated)[:-1], next_value[:-1], before[1:])
        advantage, later = torch.zeros_like(reward), torch.zeros_like(reward[0])
        for t in reversed(range(len(reward))):
            ended = steps.terminated[t] | steps.truncated[t]
            delta = reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - before[t]
            later = delta + config.gamma * config.gae_lambda * later * ~ended
            advantage[t] = later
        target, before = (advantage + before).flatten(), before.flatten()
        advantage = advantage.flatten()
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action))
    ratio, clip = (log_prob - old.log_prob.flatten()).exp(), config.clip_range(remaining)
    policy = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    if config.clip_range_vf is not None:
        limit = config.clip_range_vf(remaining)
        value = before + (value - before).clamp(-limit, limit)
    errors = (target - value).square()
    return {"algorithm.optimizer": (policy + config.vf_coef * errors - config.ent_coef * distribution.entropy()).mean()}
