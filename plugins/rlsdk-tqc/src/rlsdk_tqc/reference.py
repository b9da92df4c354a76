"""The losses of TQC in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2005.04269)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.networks import SquashedActor
from rlsdk.records import Transitions
from rlsdk_tqc.config import TQCConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: TQCConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critics (equations 13 and 14), actor (15) and entropy coefficient, each 0-d."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    log_alpha = networks["algorithm.entropy.log_alpha"]
    alpha = log_alpha.detach().exp() if isinstance(config.ent_coef, str) else torch.tensor(float(config.ent_coef))
    with torch.no_grad():
        action, log_prob = _sampled(actor, following, noise)
        atoms = target(target.encoder(following), action)  # [C, N, K]
        count, _, quantiles = atoms.shape
        # the largest atoms of all critics together are left out
        smallest = (
            torch.cat(list(atoms), -1).sort(-1).values[:, : count * (quantiles - config.top_quantiles_to_drop_per_net)]
        )
        # equation 11
        wanted = batch.reward[:, None] + batch.discount[:, None] * (smallest - alpha * log_prob[:, None])
    values = critics(critics.encoder(seen), actor.scale.to_unit(batch.action).double())
    share = ((torch.arange(quantiles, dtype=torch.float64) + 0.5) / quantiles).unsqueeze(-1)
    error = wanted[:, None, :] - values[..., None]  # [C, N, quantile, target]
    huber = torch.where(error.abs() < 1.0, error.square() / 2, error.abs() - 0.5)
    rows = ((share - (error < 0.0).double()).abs() * huber).mean((0, 2, 3))
    action, log_prob = _sampled(actor, seen, noise)
    goal = config.target_entropy_for(actor.scale.size)
    return {
        "algorithm.trained.optimizer": (rows if batch.weight is None else rows * batch.weight).mean(),
        "algorithm.trained.actor_optimizer": (
            alpha * log_prob - critics(critics.encoder(seen), action).mean((0, 2))
        ).mean(),
        "algorithm.entropy.optimizer": -(log_alpha * (log_prob.detach() + goal)).mean(),
    }


def _sampled(actor: SquashedActor, features: object, noise: float) -> tuple[Tensor, Tensor]:
    """Return (actions in [-1, 1] [N, A], their log-densities [N]) for normal numbers that are all `noise`."""
    chosen = actor.distribution(actor.encoder(features))
    before = chosen.mean + chosen.log_std.exp() * noise
    normal = (-0.5 * noise**2 - chosen.log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)
    action = before.tanh()
    return action, normal - torch.log1p(-action.square()).sum(-1)
