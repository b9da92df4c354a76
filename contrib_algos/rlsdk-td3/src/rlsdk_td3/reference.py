"""The losses of TD3 in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_td3.config import TD3Config


def losses(networks: Mapping[str, Any], batch: Transitions, config: TD3Config, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critics and actor, each 0-d."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    target_actor = networks["algorithm.actor_target.network"]
    with torch.no_grad():
        limit = config.target_noise_clip
        moved = max(-limit, min(limit, config.target_policy_noise * noise))
        action = (target_actor.unit_action(target_actor.encoder(following)) + moved).clamp(-1.0, 1.0)
        smallest = target(target.encoder(following), action).squeeze(-1).min(0).values
        wanted = batch.reward + batch.discount * smallest
    values = critics(critics.encoder(seen), actor.scale.to_unit(batch.action).double()).squeeze(-1)
    errors = (values - wanted).square()
    best = critics(critics.encoder(seen), actor.unit_action(actor.encoder(seen))).squeeze(-1)[0]
    return {
        "algorithm.trained.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
        "algorithm.trained.actor_optimizer": -best.mean(),
    }
