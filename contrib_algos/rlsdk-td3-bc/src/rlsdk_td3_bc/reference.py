"""The losses of TD3+BC in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2106.06860)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_td3_bc.config import TD3BCConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: TD3BCConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of critics (as in TD3, arXiv:1802.09477) and actor (equations 3 and 5), each 0-d."""
    actor, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.trained.target.network"))
    seen, following = batch.observation.features, batch.next_observation.features
    target_actor, recorded = networks["algorithm.actor_target.network"], actor.scale.to_unit(batch.action).double()
    with torch.no_grad():
        limit = config.target_noise_clip
        moved = max(-limit, min(limit, config.target_policy_noise * noise))
        action = (target_actor.unit_action(target_actor.encoder(following)) + moved).clamp(-1.0, 1.0)
        smallest = target(target.encoder(following), action).squeeze(-1).min(0).values
        wanted = batch.reward + batch.discount * smallest
    errors = (critics(critics.encoder(seen), recorded).squeeze(-1) - wanted).square()
    chosen = actor.unit_action(actor.encoder(seen))
    value = critics(critics.encoder(seen), chosen).squeeze(-1)[0]
    weight = config.alpha / value.detach().abs().mean()  # lambda of equation 5, a constant
    return {
        "algorithm.trained.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
        "algorithm.trained.actor_optimizer": (chosen - recorded).square().mean() - weight * value.mean(),
    }
