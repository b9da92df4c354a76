"""PPO-Lagrangian in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1805.11074)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acme_constrained.config import LagrangianConfig
from rlsdk.records import Rollout, successors
from rlsdk.tree import map_tensors


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: LagrangianConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of PPO for (reward - multiplier * cost) / (1 + multiplier), 0-d; the multiplier is the new one."""
    network, steps = networks["policy"], batch.steps
    multiplier = after(networks, batch, config, noise)["algorithm.multiplier"]
    reward = (steps.reward - multiplier * steps.info["cost"]) / (1.0 + multiplier)
    old, seen = network.estimates(steps), (steps.observation, successors(batch), steps.action)
    seen, following, action = map_tensors(lambda leaf: leaf.flatten(0, 1), seen)
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
        target, before, advantage = ((advantage + before).flatten(), before.flatten(), advantage.flatten())
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action))
    ratio, clip = (log_prob - old.log_prob.flatten()).exp(), config.clip_range(0.5)
    policy = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    if config.clip_range_vf is not None:
        limit = config.clip_range_vf(0.5)
        value = before + (value - before).clamp(-limit, limit)
    rows = policy + config.vf_coef * (target - value).square() - config.ent_coef * distribution.entropy()
    return {"algorithm.ppo.optimizer": rows.mean()}


def after(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: LagrangianConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the multiplier, and the cost so far of the episodes that still run."""
    steps, running, ended = batch.steps, networks["algorithm.running"], list[Tensor]()
    for t, cost in enumerate(steps.info["cost"]):
        running = torch.where(steps.observation.is_first[t], cost, running + cost)
        ended.append(running[steps.terminated[t] | steps.truncated[t]])
    costs, multiplier = torch.cat(ended), networks["algorithm.multiplier"]
    if len(costs):
        multiplier = multiplier + config.multiplier_rate * (costs.mean() - config.cost_limit)
    return {"algorithm.multiplier": multiplier.clamp(min=0.0), "algorithm.running": running}
