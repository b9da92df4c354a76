"""The losses of DDPG in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_ddpg.config import DDPGConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: DDPGConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critic and actor (algorithm 1), each 0-d. With several critics, the smallest target counts."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    target_actor = networks["algorithm.actor_target.network"]
    with torch.no_grad():
        action = target_actor.unit_action(target_actor.encoder(following))
        next_value = target(target.encoder(following), action).squeeze(-1).min(0).values
        wanted = batch.reward + batch.discount * next_value
    values = critics(critics.encoder(seen), actor.scale.to_unit(batch.action).double()).squeeze(-1)
    errors = (values - wanted).square()
    chosen = critics(critics.encoder(seen), actor.unit_action(actor.encoder(seen))).squeeze(-1)[0]
    return {
        "algorithm.trained.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
        "algorithm.trained.actor_optimizer": -chosen.mean(),
    }
