"""The losses of GAIL in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1606.03476)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Features, Rollout, successors
from rlsdk.spaces import Box, Dict, Space, Tuple
from rlsdk.tree import map_tensors
from rlsdk_datasets import open_episodes
from rlsdk_gail.config import GAILConfig
from rlsdk_gail.discriminator import Discriminator

Networks = Mapping[str, Any]
Batch = Rollout[Any, Any]
Statistics = tuple[Tensor, Tensor, Tensor]
"""Mean [F] and variance [F] of all observations so far, and their number."""


def losses(networks: Networks, batch: Batch, config: GAILConfig, noise: float) -> Mapping[str, Tensor | list[Tensor]]:
    """Return the losses of the discriminator's steps (equation 17), and that of PPO for its rewards, each 0-d.

    They are for networks without memory, and with normalized observations of the discriminator.
    """
    discriminator, found = networks["algorithm.discriminator"], list[Tensor]()
    for statistics, seen, action in _rounds(discriminator, batch, config):
        size = len(seen) // 2
        inputs = torch.cat([_normalized(seen, statistics), action], -1)
        logit = discriminator.layers(inputs).squeeze(-1)
        right, wrong = torch.sigmoid(logit), torch.sigmoid(-logit)
        entropy = -(right * right.log() + wrong * wrong.log()).mean()
        between = (noise * inputs[:size] + (1.0 - noise) * inputs[size:]).detach().requires_grad_()
        grad = torch.autograd.grad(discriminator.layers(between).sum(), between, create_graph=True)[0]
        penalty = (grad.norm(dim=-1) - 1.0).square().mean()  # arXiv:1704.00028, equation 3
        cross = -right[:size].log().mean() - wrong[size:].log().mean()
        found.append(cross - config.adversary_entcoeff * entropy + config.gradient_penalty * penalty)
    return {"algorithm.optimizer": found, "algorithm.policy.optimizer": _loss_of_policy(networks, batch, config)}


def after(networks: Networks, batch: Batch, config: GAILConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the statistics [F] of observations after the discriminator's steps, if there are steps after every rollout."""
    if config.g_step > 1:
        return {}
    *_, (statistics, _, _) = _rounds(networks["algorithm.discriminator"], batch, config)
    names = ("mean", "variance", "count")
    return {f"algorithm.discriminator.scale.{name}": each for name, each in zip(names, statistics, strict=True)}


def _rounds(
    discriminator: Discriminator, batch: Batch, config: GAILConfig
) -> Iterator[tuple[Statistics, Tensor, Tensor]]:
    """Yield (statistics, observations [2 N, F], actions [2 N, G]) for each step: N rows of the expert, then N of the policy.

    Where rows are drawn, the kit draws the first row of the data set, and the rows of the rollout in order.
    """
    assert config.dataset is not None
    expert, scale, space = open_episodes(config.dataset).episode(0), discriminator.scale, discriminator.action_space
    assert scale is not None  # the encoder has no weights
    statistics = scale.mean, scale.variance, scale.count
    mine = map_tensors(lambda leaf: leaf.flatten(0, 1), (batch.steps.observation.features, batch.steps.action))
    size = config.demo_batch_size or max(1, batch.steps.reward.numel() // config.d_step)
    size = min(size, batch.steps.reward.numel())
    theirs = map_tensors(
        lambda leaf: torch.as_tensor(leaf[0]).expand(size, *leaf[0].shape), (expert.observations, expert.actions)
    )
    pairs = theirs, map_tensors(lambda leaf: leaf[:size], mine)
    seen = torch.cat([discriminator.encoder(features).double() for features, _ in pairs])
    action = torch.cat([discriminator.action_encoder(_executed(space, each)).double() for _, each in pairs])
    for _ in range(config.d_step):
        mean, variance, count = statistics
        total = count + len(seen)
        new_mean = (count * mean + seen.sum(0)) / total
        square = (count * (variance + mean.square()) + seen.square().sum(0)) / total
        statistics = new_mean, square - new_mean.square(), total
        yield statistics, seen, action


def _normalized(seen: Tensor, statistics: Statistics) -> Tensor:
    """Return observations [N, F] with mean 0 and deviation 1, at most 10 away from 0."""
    mean, variance, _ = statistics
    return ((seen - mean) / variance.clamp(min=1e-4).sqrt()).clamp(-10.0, 10.0)


def _executed(space: Space, action: Features) -> Features:
    """Return actions [N, ..] within their bounds, as the environment gets them."""
    if isinstance(space, Dict):
        return {name: _executed(child, action[name]) for name, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_executed(child, each) for child, each in zip(space.spaces, action, strict=True))
    within: Features = (
        action.clamp(torch.tensor(space.low), torch.tensor(space.high)) if isinstance(space, Box) else action
    )
    return within


def _rewards(discriminator: Discriminator, batch: Batch, config: GAILConfig) -> Tensor:
    """Return the rewards [T, B] of the discriminator before its steps; D is the probability that a step is the expert's."""
    scale, steps = discriminator.scale, batch.steps
    assert scale is not None
    features, action = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation.features, steps.action))
    seen = _normalized(discriminator.encoder(features).double(), (scale.mean, scale.variance, scale.count))
    done = discriminator.action_encoder(_executed(discriminator.action_space, action)).double()
    right = torch.sigmoid(discriminator.layers(torch.cat([seen, done], -1)).squeeze(-1)).view(steps.reward.shape)
    likely, unlikely = (right + 1e-8).log(), (1.0 - right + 1e-8).log()
    forms = {"positive": -unlikely, "negative": likely, "logit": likely - unlikely, "constant": torch.ones_like(right)}
    return forms[config.reward].detach()


def _loss_of_policy(networks: Networks, batch: Batch, config: GAILConfig) -> Tensor:
    """Return the loss of PPO (arXiv:1707.06347) of a rollout that is one minibatch, 0-d."""
    network, steps, remaining = networks["policy"], batch.steps, 0.5
    reward, before, ended = (
        _rewards(networks["algorithm.discriminator"], batch, config),
        steps.extras.value,
        steps.terminated,
    )
    ended = ended | steps.truncated
    seen, following, action = map_tensors(
        lambda leaf: leaf.flatten(0, 1), (steps.observation, successors(batch), steps.action)
    )
    starts = torch.ones(reward.numel(), dtype=torch.bool)
    distribution, value = network.evaluate(seen, ((), ()), starts)
    with torch.no_grad():
        next_value = network.evaluate(following, ((), ()), starts)[1].view(reward.shape)
        next_value[:-1] = torch.where(ended[:-1], next_value[:-1], before[1:])
        advantage, later = torch.zeros_like(reward), torch.zeros_like(reward[0])
        for t in reversed(range(len(reward))):
            delta = reward[t] + config.gamma * next_value[t] * ~steps.terminated[t] - before[t]
            later = delta + config.gamma * config.gae_lambda * later * ~ended[t]
            advantage[t] = later
        target, before, advantage = (advantage + before).flatten(), before.flatten(), advantage.flatten()
        if config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = distribution.log_prob(network.internal(action))
    ratio, clip = (log_prob - steps.extras.log_prob.flatten()).exp(), config.clip_range(remaining)
    policy = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    if config.clip_range_vf is not None:
        limit = config.clip_range_vf(remaining)
        value = before + (value - before).clamp(-limit, limit)
    errors = (target - value).square()
    loss: Tensor = (policy + config.vf_coef * errors - config.ent_coef * distribution.entropy()).mean()
    return loss
