"""The losses of discrete SAC in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1910.07207)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Observation, Transitions
from rlsdk_discrete_sac.config import DiscreteSACConfig


def losses(
    networks: Mapping[str, Any], batch: Transitions, config: DiscreteSACConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the losses of critics, actor and entropy coefficient, each 0-d, half of the training being done."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following, log_alpha = batch.observation, batch.next_observation, networks["algorithm.entropy.log_alpha"]
    alpha = log_alpha.detach().exp() if isinstance(config.ent_coef, str) else torch.tensor(float(config.ent_coef))
    action = batch.action.view(len(batch.reward), -1) - actor.start
    critic_loss = actor_loss = excess = torch.zeros((), dtype=torch.float64)
    first = 0
    for choice, size in enumerate(actor.sizes):
        part = slice(first, first + size)
        first += size
        with torch.no_grad():
            after, log_after, _ = _policy(actor, following, part)
            smallest = _values(target, following)[:, :, part].min(0).values
            soft = (after * (smallest - alpha * log_after)).sum(-1)
            wanted = batch.reward + batch.discount * soft
        values = _values(critics, seen)[:, :, part]
        errors = (values[:, torch.arange(len(wanted)), action[:, choice]] - wanted).square() / 2
        critic_loss = critic_loss + (errors if batch.weight is None else errors * batch.weight).sum(0).mean()
        probs, log_probs, allowed = _policy(actor, seen, part)
        smallest = values.min(0).values
        actor_loss = actor_loss + (probs * (alpha * log_probs - smallest)).sum(-1).mean()
        goal = config.target_entropy_scale(0.5) * allowed.log()
        excess = excess + (goal + (probs * log_probs).sum(-1)).mean()
    return {
        "algorithm.trained.optimizer": critic_loss / len(actor.sizes),
        "algorithm.trained.actor_optimizer": actor_loss,
        "algorithm.entropy.optimizer": -(log_alpha * excess.detach()).mean(),
    }


def _policy(actor: Any, observation: Observation, part: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Return (probabilities [N, n], their logarithms [N, n], number of allowed values [N]) of one choice.

    The logarithms are 0 where a value is forbidden: 0 log 0 = 0.
    """
    logits = actor.head(actor.body(actor.encoder(observation.features)))[:, part]
    mask = torch.ones_like(logits, dtype=torch.bool)
    if observation.action_mask is not None:
        mask = observation.action_mask[:, part]
    weights = logits.exp() * mask
    probs = weights / weights.sum(-1, keepdim=True)
    return probs, torch.where(mask, probs, 1.0).log(), mask.sum(-1).double()


def _values(critics: Any, observation: Observation) -> Tensor:
    """The values [C, N, A] of all critics."""
    encoded = critics.encoder(observation.features)
    values: Tensor = critics.ensemble(encoded)
    return values
