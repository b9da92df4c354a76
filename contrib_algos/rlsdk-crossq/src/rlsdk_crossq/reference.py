"""The losses of CrossQ in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1902.05605)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_crossq.config import CrossQConfig
from rlsdk_crossq.layers import BatchRenorm


def losses(networks: Mapping[str, Any], batch: Transitions, config: CrossQConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critics, actor and entropy coefficient, each 0-d."""
    actor, critics = networks["policy"], networks["algorithm.critics"]
    seen, following = batch.observation.features, batch.next_observation.features
    log_alpha = networks["algorithm.entropy.log_alpha"]
    alpha = log_alpha.detach().exp() if isinstance(config.ent_coef, str) else torch.tensor(float(config.ent_coef))
    with torch.no_grad():
        action, log_prob = _sampled(actor, following, noise, in_batch=False)
    features = torch.cat([critics.encoder(seen), critics.encoder(following)])
    actions = torch.cat([actor.scale.to_unit(batch.action).double(), action])
    every = _values(critics, features, actions, in_batch=True)
    values, next_values = every[:, : len(batch.reward)], every[:, len(batch.reward) :]
    wanted = (batch.reward + batch.discount * (next_values.min(0).values - alpha * log_prob)).detach()
    errors = (values - wanted).square() / 2
    action, log_prob = _sampled(actor, seen, noise, in_batch=True)
    # after the critics' pass, which has moved their running statistics
    best = _values(critics, critics.encoder(seen), action, in_batch=False).min(0).values
    goal = config.target_entropy_for(actor.scale.size)
    return {
        "algorithm.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
        "algorithm.actor_optimizer": (alpha * log_prob - best).mean(),
        "algorithm.entropy.optimizer": -(log_alpha * (log_prob.detach() + goal)).mean(),
    }


def _values(critics: Any, features: Tensor, actions: Tensor, *, in_batch: bool) -> Tensor:
    """The values [C, N] of unit actions [N, A] for features [N, F]."""
    inputs = torch.cat([features, actions], 1).expand(critics.ensemble.members, -1, -1)
    return _passed(critics.ensemble.layers, inputs, in_batch).squeeze(-1)


def _sampled(actor: Any, seen: object, noise: float, *, in_batch: bool) -> tuple[Tensor, Tensor]:
    """Return (actions in [-1, 1] [N, A], their log-densities [N]) for normal numbers that are all `noise`."""
    latent = _passed(actor.body, actor.encoder(seen), in_batch)
    log_std = actor.log_std(latent).clamp(-20.0, 2.0)
    action = (actor.mean(latent) + log_std.exp() * noise).tanh()
    normal = (-0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)
    return action, normal - torch.log1p(-action.square()).sum(-1)


def _passed(layers: Any, x: Tensor, in_batch: bool) -> Tensor:
    """Call layers one after another, [.., N, I] -> [.., N, O]. Normalizations are computed here, in the words of the paper."""
    for layer in layers:
        x = _normalized(layer, x.double(), in_batch) if isinstance(layer, BatchRenorm) else layer(x)
    return x


def _normalized(layer: BatchRenorm, x: Tensor, in_batch: bool) -> Tensor:
    """One layer, [.., N, F] -> [.., N, F]; with `in_batch` it moves the running statistics of the layer."""
    mean, variance = layer.mean, layer.variance
    if in_batch:
        mean, variance = x.mean(-2), x.var(-2)
        deviation, running = (variance.detach() + layer.eps).sqrt(), (layer.variance + layer.eps).sqrt()
        warm = int(layer.passes) > layer.warm_up
        r = (deviation / running).clamp(1 / 3, 3) if warm else torch.ones_like(deviation)
        d = ((mean.detach() - layer.mean) / running).clamp(-5, 5) if warm else torch.zeros_like(deviation)
        layer.mean = layer.mean + layer.momentum * (mean.detach() - layer.mean)
        layer.variance = layer.variance + layer.momentum * (variance.detach() - layer.variance)
        layer.passes = layer.passes + 1
        mean, variance = mean - d * (variance + 1e-300).sqrt() / r, variance / r**2
    scaled = (x - mean.unsqueeze(-2)) / (variance + layer.eps).sqrt().unsqueeze(-2)
    return layer.scale.unsqueeze(-2) * scaled + layer.bias.unsqueeze(-2)
