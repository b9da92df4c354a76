"""The losses of CQL in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2006.04779)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_cql.config import CQLConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: CQLConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of the networks, of the entropy coefficient and of the weight of the penalty, each 0-d."""
    if "algorithm.entropy.log_alpha" not in networks:
        return _of_choices(networks, batch, config)
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    log_coef, recorded = networks["algorithm.entropy.log_alpha"], actor.scale.to_unit(batch.action).double()
    ent_coef = log_coef.detach().exp() if isinstance(config.ent_coef, str) else torch.tensor(float(config.ent_coef))
    weight = _weight(networks, config)

    def value(action: Tensor, network: Any = critics, features: Any = seen) -> Tensor:
        found: Tensor = network(network.encoder(features), action).squeeze(-1)
        return found

    with torch.no_grad():
        next_action, next_log_prob = _sampled(actor, following, noise)
        bonus = ent_coef * next_log_prob if config.backup_entropy else 0.0
        wanted = batch.reward + batch.discount * (value(next_action, target, following).min(0).values - bonus)
        action, density = _sampled(actor, seen, noise)
        uniform, size = torch.full_like(action, 2.0 * noise - 1.0), actor.scale.size
        # nothing is learned from the next observation where the episode terminated
        ended = batch.discount == 0.0
        third = torch.where(ended.unsqueeze(-1), action, next_action), torch.where(ended, density, next_log_prob)
    # all samples of a kind are equal here, so that the mean over each kind is one of them
    kinds = ((uniform, -size * math.log(2.0)), (action, density), third)
    integral = torch.stack([(value(each) - log).exp() for each, log in kinds]).mean(0)
    errors, penalty = (value(recorded) - wanted).square() / 2, integral.log() - value(recorded)
    if batch.weight is not None:
        errors, penalty = errors * batch.weight, penalty * batch.weight
    penalty = penalty.mean(-1)
    fresh, log_prob = _sampled(actor, seen, noise)
    goal = -float(size) if config.target_entropy == "auto" else float(config.target_entropy)
    gain = value(fresh).min(0).values
    if networks["algorithm.trained.updates"] < config.cloning_updates:
        gain = _log_density(actor, seen, recorded)
    found = {
        "algorithm.trained.optimizer": errors.mean(-1).sum() + weight * penalty.sum(),
        "algorithm.trained.actor_optimizer": (ent_coef * log_prob - gain).mean(),
        "algorithm.entropy.optimizer": -(log_coef * (log_prob.detach() + goal)).mean(),
    }
    return found | _dual(networks, config, penalty)


def _of_choices(networks: Mapping[str, Any], batch: Transitions, config: CQLConfig) -> Mapping[str, Tensor]:
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
    every = online(batch.observation.features)
    taken, mask = every.gather(-1, action).squeeze(-1), batch.observation.action_mask
    error = taken - wanted
    huber = torch.where(error.abs() < 1.0, error.square() / 2, error.abs() - 0.5)
    terms = every.exp() if mask is None else every.exp() * mask
    penalty = terms.sum(-1).log() - taken
    if batch.weight is not None:
        huber, penalty = huber * batch.weight, penalty * batch.weight
    penalty = penalty.mean()
    loss = huber.mean() + _weight(networks, config) * penalty
    return {"algorithm.optimizer": loss, **_dual(networks, config, penalty)}


def _weight(networks: Mapping[str, Any], config: CQLConfig) -> Tensor:
    """Alpha, the weight of the penalty, 0-d."""
    if config.threshold is None:
        return torch.tensor(config.alpha)
    log_alpha: Tensor = networks["algorithm.weight.learned.log_alpha"]
    return log_alpha.detach().exp().squeeze()


def _dual(networks: Mapping[str, Any], config: CQLConfig, penalty: Tensor) -> dict[str, Tensor]:
    """The loss of log alpha, 0-d; nothing if alpha is constant."""
    if config.threshold is None:
        return {}
    log_alpha = networks["algorithm.weight.learned.log_alpha"]
    return {"algorithm.weight.learned.optimizer": -(log_alpha * (penalty.detach().mean() - config.threshold)).sum()}


def _sampled(actor: Any, features: object, noise: float) -> tuple[Tensor, Tensor]:
    """Return (actions in [-1, 1] [N, A], their log-densities [N]) for normal numbers that are all `noise`."""
    chosen = actor.distribution(actor.encoder(features))
    before = chosen.mean + chosen.log_std.exp() * noise
    normal = (-0.5 * noise**2 - chosen.log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)
    action = before.tanh()
    return action, normal - torch.log1p(-action.square()).sum(-1)


def _log_density(actor: Any, features: object, action: Tensor) -> Tensor:
    """Return the log-densities [N] of recorded actions in [-1, 1], which are moved inside by a rounding error of float32."""
    chosen, margin = actor.distribution(actor.encoder(features)), torch.finfo(torch.float32).eps
    inside = action.clamp(-1.0 + margin, 1.0 - margin)
    error = (inside.atanh() - chosen.mean) / chosen.log_std.exp()
    normal = -0.5 * error.square() - chosen.log_std - 0.5 * math.log(2.0 * math.pi)
    found: Tensor = (normal - torch.log1p(-inside.square())).sum(-1)
    return found
