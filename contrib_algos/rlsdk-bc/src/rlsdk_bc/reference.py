"""The loss of behavior cloning in plain formulas, for the clause `formula.reference` of the contract kit (Pomerleau 1988)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.distributions import Gaussian, Product
from rlsdk.interfaces import Distribution
from rlsdk.records import Transitions
from rlsdk_bc.config import BCConfig
from rlsdk_datasets import open_episodes


def losses(networks: Mapping[str, Any], batch: Transitions, config: BCConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the loss, 0-d, for policies without memory: of the actions, entropy, values and size of the actor's weights."""
    policy = networks["policy"]
    starts = torch.ones(len(batch.reward), dtype=torch.bool)
    distribution, value = policy.evaluate(batch.observation, ((), ()), starts)
    imitation, entropy = _terms(distribution, policy.internal(batch.action), squared=config.loss == "squared_error")
    loss = imitation.mean() - config.ent_coef * entropy.mean()
    if config.vf_coef:
        loss = loss + config.vf_coef * (value - _returns(config)[batch.index]).square().mean()
    for parameter in policy.actor_parameters:
        loss = loss + config.l2_coef * parameter.square().sum() / 2
    return {"algorithm.optimizer": loss}


def after(networks: Mapping[str, Any], batch: Transitions, config: BCConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the logarithms of deviations [A]: with the likelihood, they stay above `log_std_min`."""
    bound = config.log_std_min if config.loss == "likelihood" else -torch.inf
    named = networks["policy"].named_parameters()
    return {f"policy.{name}": each.detach().clamp(min=bound) for name, each in named if name.endswith("log_std")}


def _terms(distribution: Distribution, action: Any, *, squared: bool) -> tuple[Tensor, Tensor]:
    """Return (the loss of actions [N], the entropy [N]); with `squared`, only the mean of a Gaussian is fitted."""
    if isinstance(distribution, Product):  # of a Dict or Tuple
        parts = distribution.parts
        named = enumerate(parts) if isinstance(parts, tuple) else parts.items()
        found = [_terms(part, action[key], squared=squared) for key, part in named]
        return torch.stack([each[0] for each in found]).sum(0), torch.stack([each[1] for each in found]).sum(0)
    if squared and isinstance(distribution, Gaussian):
        error = (action - distribution.mean).square().sum(-1)
        return error, torch.zeros_like(error)
    return -distribution.log_prob(action), distribution.entropy()


def _returns(config: BCConfig) -> Tensor:
    """Return the discounted sum of rewards from each recorded step to the end of its episode, [S]."""
    assert config.dataset is not None
    episodes, found = open_episodes(config.dataset), list[Tensor]()
    for episode in episodes.split(1.0 - config.held_out)[0] if config.held_out else episodes:
        count = len(episode.rewards)
        powers = torch.arange(count)[None, :] - torch.arange(count)[:, None]
        found.append((config.gamma ** powers.clamp(min=0)).triu().double() @ torch.as_tensor(episode.rewards).double())
    return torch.cat(found)
