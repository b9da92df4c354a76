"""The loss of PPO with masks in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2006.14171)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.networks import ActorCritic
from rlsdk.records import Observation, Rollout, successors
from rlsdk.tree import map_tensors
from rlsdk_maskable_ppo.config import MaskablePPOConfig


def losses(
    networks: Mapping[str, Any], batch: Rollout[Any, Any], config: MaskablePPOConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B] that is one minibatch, 0-d (arXiv:1707.06347, equations 7, 9 and 11)."""
    network, steps, progress = networks["policy"], batch.steps, 0.5
    old, ended = network.estimates(steps), steps.terminated | steps.truncated
    seen, following, taken = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    with torch.no_grad():
        before, reward = old.value, steps.reward
        next_value = _value(network, following).view(reward.shape)
        next_value[:-1] = torch.where(ended[:-1], next_value[:-1], before[1:])
        advantage, later = torch.zeros_like(reward), torch.zeros_like(reward[0])
        for t in reversed(range(len(reward))):
            delta = reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - before[t]
            later = delta + config.gamma * config.gae_lambda * later * ~ended[t]
            advantage[t] = later
        target, before, advantage = (advantage + before).flatten(), before.flatten(), advantage.flatten()
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    latent = network.body(network.encoder(seen.features))
    log_prob, entropy = _chosen(network.head, latent, seen.action_mask if config.use_masking else None, taken)
    ratio, clip = (log_prob - old.log_prob.flatten()).exp(), config.clip_range(progress)
    policy = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    value = _value(network, seen)
    if config.clip_range_vf is not None:
        limit = config.clip_range_vf(progress)
        value = before + (value - before).clamp(-limit, limit)
    rows = policy + config.vf_coef * (target - value).square() - config.ent_coef * entropy
    return {"algorithm.optimizer": rows.mean()}


def _value(network: ActorCritic, seen: Observation) -> Tensor:
    """Return the values [N]; the critic has the actor's encoder, or one of its own."""
    encoder = network.encoder if network.critic_encoder is None else network.critic_encoder
    value: Tensor = network.value(network.critic_body(encoder(seen.features))).squeeze(-1)
    return value


def _chosen(head: Any, latent: Tensor, mask: Tensor | None, taken: Any) -> tuple[Tensor, Tensor]:
    """Return (log pi(a|s) [N], entropy [N]). The softmax of each choice is over the values that its mask allows."""
    if hasattr(head, "heads"):  # a Dict or Tuple: the sum over its entries
        masks = [None] * len(head.heads) if mask is None else torch.split(mask, head.widths, -1)
        each = [taken[key] for key in head.keys] if head.keys else taken
        parts = [_chosen(*part) for part in zip(head.heads, [latent] * len(each), masks, each, strict=True)]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)  # type: ignore[return-value]
    if hasattr(head, "log_std"):  # a Box, which has no masks
        error = (head.from_environment(taken) - head.linear(latent)) / head.log_std.exp()
        surprise = error.square() / 2 + head.log_std + math.log(2.0 * math.pi) / 2
        entropy = (head.log_std + (1.0 + math.log(2.0 * math.pi)) / 2).sum()
        return -surprise.sum(-1), entropy.expand(len(latent))
    logits, taken = head.linear(latent), head.from_environment(taken).view(len(latent), -1).long()
    sizes = getattr(head, "sizes", [logits.shape[-1]])
    if hasattr(head, "shape"):  # bits: the logit of 0 is 0
        logits, sizes = torch.stack([torch.zeros_like(logits), logits], -1).flatten(-2), [2] * logits.shape[-1]
    allowed = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
    log_prob, entropy = torch.zeros(len(latent)), torch.zeros(len(latent))
    choices = (torch.split(logits, sizes, -1), torch.split(allowed, sizes, -1), torch.split(taken, 1, -1))
    for own, may, value in zip(*choices, strict=True):
        found = own.masked_fill(~may, -torch.inf).log_softmax(-1)
        log_prob = log_prob + found.gather(-1, value).squeeze(-1)
        entropy = entropy - (found.exp() * found.masked_fill(~may, 0.0)).sum(-1)
    return log_prob, entropy
