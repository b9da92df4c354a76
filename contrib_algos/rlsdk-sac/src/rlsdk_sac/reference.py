"""The losses of SAC in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_sac.config import SACConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: SACConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critics, actor and entropy coefficient, each 0-d."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    log_alpha = networks["algorithm.entropy.log_alpha"]
    alpha = log_alpha.detach().exp() if isinstance(config.ent_coef, str) else torch.tensor(float(config.ent_coef))
    with torch.no_grad():
        action, log_prob = _sampled(actor, following, noise)
        smallest = target(target.encoder(following), action).squeeze(-1).min(0).values
        wanted = batch.reward + batch.discount * (smallest - alpha * log_prob)
    values = critics(critics.encoder(seen), actor.scale.to_unit(batch.action).double()).squeeze(-1)
    errors = (values - wanted).square() / 2
    action, log_prob = _sampled(actor, seen, noise)
    best = critics(critics.encoder(seen), action).squeeze(-1).min(0).values
    goal = config.target_entropy_for(actor.scale.size)
    return {
        "algorithm.trained.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
        "algorithm.trained.actor_optimizer": (alpha * log_prob - best).mean(),
        "algorithm.entropy.optimizer": -(log_alpha * (log_prob.detach() + goal)).mean(),
    }


def _sampled(actor: Any, features: object, noise: float) -> tuple[Tensor, Tensor]:
    """Return (actions in [-1, 1] [N, A], their log-densities [N]) for normal numbers that are all `noise`."""
    chosen = actor.distribution(actor.encoder(features))
    before = chosen.mean + chosen.log_std.exp() * noise
    normal = (-0.5 * noise**2 - chosen.log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)
    action = before.tanh()
    return action, normal - torch.log1p(-action.square()).sum(-1)
