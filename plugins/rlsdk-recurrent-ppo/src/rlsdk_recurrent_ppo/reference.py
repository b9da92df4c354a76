"""The loss of PPO with a memory in plain formulas, for the clause `formula.reference` of the contract kit.

Sources: arXiv:1707.06347, equations 7, 9 and 11; for the burn-in Kapturowski et al. 2019 (R2D2), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from rlsdk.networks import ActorCritic, Memory
from rlsdk.records import Observation, Rollout
from rlsdk.tree import map_tensors
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig

Batch = Rollout[Any, Any]
States = tuple[Tensor, ...]


def losses(networks: Mapping[str, Any], batch: Batch, config: RecurrentPPOConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the loss of a rollout [T, B] that is one minibatch, 0-d."""
    network, steps, progress = networks["policy"], batch.steps, 0.5
    old, counts = steps.extras, _counts(batch, config)
    latent, values = _unrolled(network, batch, config)
    seen, action = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation, steps.action))
    distribution = network.head(network.body(latent), seen.action_mask)
    with torch.no_grad():
        advantage = _advantages(network, batch, config)
        target, before = (advantage + old.value)[counts], old.value[counts]
        advantage = advantage[counts]
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action)).view(counts.shape)[counts]
    ratio, clip = (log_prob - old.log_prob[counts]).exp(), config.clip_range(progress)
    policy = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    value = values[counts]
    if config.clip_range_vf is not None:
        limit = config.clip_range_vf(progress)
        value = before + (value - before).clamp(-limit, limit)
    entropy = distribution.entropy().view(counts.shape)[counts]
    rows = policy + config.vf_coef * (target - value).square() - config.ent_coef * entropy
    return {"algorithm.optimizer": rows.mean()}


def _starts(batch: Batch, config: RecurrentPPOConfig) -> Tensor:
    """Return where a sequence begins, bool [T, B]: with an episode, with the rollout, and after `sequence_length` steps."""
    starts, length = batch.steps.observation.is_first.clone(), config.sequence_length or len(batch.steps.reward)
    starts[::length] = True
    return starts


def _counts(batch: Batch, config: RecurrentPPOConfig) -> Tensor:
    """Return which steps have a loss, bool [T, B]: not the first ones of sequences that begin inside an episode."""
    first, starts = batch.steps.observation.is_first, _starts(batch, config)
    counts, place, inside = torch.ones_like(first), torch.zeros(len(first[0])), torch.zeros_like(first[0])
    for t in range(len(first)):
        place, inside = torch.where(starts[t], 0.0, place + 1.0), torch.where(starts[t], ~first[t], inside)
        counts[t] = ~inside | (place >= config.burn_in)
    return counts


def _unrolled(network: ActorCritic, batch: Batch, config: RecurrentPPOConfig) -> tuple[Tensor, Tensor]:
    """Return (latents of the actor [T * B, H], values [T, B]), step by step. A sequence begins with the stored states."""
    steps, starts = batch.steps, _starts(batch, config)
    latents, values, (actor, critic) = (
        list[Tensor](),
        list[Tensor](),
        map_tensors(lambda leaf: leaf[0], steps.extras.memory),
    )
    for t in range(len(starts)):
        seen, stored = map_tensors(lambda leaf, t=t: leaf[t], (steps.observation, steps.extras.memory))
        actor, critic = (
            tuple(torch.where(starts[t].view(-1, 1, 1), a, b) for a, b in zip(*pair, strict=True))
            for pair in zip(stored, (actor, critic), strict=True)
        )
        latent, value, actor, critic = _step(network, seen, actor, critic)
        latents.append(latent)
        values.append(value)
    return torch.cat(latents), torch.stack(values)


def _step(
    network: ActorCritic, seen: Observation, actor: States, critic: States
) -> tuple[Tensor, Tensor, States, States]:
    """Return (latent of the actor [B, H], value [B], the next states of both). States of rows that begin an episode are 0."""
    features = network.encoder(seen.features)
    latent, actor = cast("Memory", network.memory).step(features, actor, seen.is_first)
    if network.critic_memory is None:
        own = latent.detach()  # the value reads the actor's memory, and does not train it
    else:
        others = features if network.critic_encoder is None else network.critic_encoder(seen.features)
        own, critic = cast("Memory", network.critic_memory).step(others, critic, seen.is_first)
    return latent, network.value(network.critic_body(own)).squeeze(-1), actor, critic


def _advantages(network: ActorCritic, batch: Batch, config: RecurrentPPOConfig) -> Tensor:
    """Return A [T, B] (equation 11), from the values when the actions were chosen. The states are those that acting stored."""
    steps, value, finals = batch.steps, batch.steps.extras.value, batch.final_observations
    last = batch.last_carry
    states = map_tensors(
        lambda rows, end: torch.cat([rows[1:], end[None]]), steps.extras.memory, (last.actor, last.critic)
    )
    end = _step(network, batch.last_observation, last.actor, last.critic)[1]
    next_value = torch.cat([value[1:], end[None]])
    if finals is not None:
        before = map_tensors(lambda leaf: leaf[finals.time, finals.env], states)
        next_value[finals.time, finals.env] = _step(network, finals.observation, *before)[1]
    advantage, later = torch.zeros_like(value), torch.zeros_like(value[0])
    for t in reversed(range(len(value))):
        ended = steps.terminated[t] | steps.truncated[t]
        delta = steps.reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - value[t]
        later = delta + config.gamma * config.gae_lambda * later * ~ended
        advantage[t] = later
    return advantage
