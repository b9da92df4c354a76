"""The losses of IQL in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:2110.06169)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Transitions
from rlsdk_iql.config import IQLConfig


def losses(networks: Mapping[str, Any], batch: Transitions, config: IQLConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the losses of V (equation 5), policy (equation 7) and critics (equation 6), each 0-d."""
    policy, critics, target = (networks[n] for n in ("policy", "algorithm.critics", "algorithm.target.network"))
    seen, first = batch.observation.features, batch.observation.is_first
    inputs = networks["algorithm.action_input"](batch.action).double()
    distribution, value = policy.evaluate(batch.observation, ((), ()), first)
    with torch.no_grad():
        smallest = target(target.encoder(seen), inputs).squeeze(-1).min(0).values
        _, following = policy.evaluate(batch.next_observation, ((), ()), first)
        weight = torch.exp(config.beta * (smallest - value)).clamp(max=config.max_weight)
    below = (smallest < value).double()
    errors = (critics(critics.encoder(seen), inputs).squeeze(-1) - batch.reward - batch.discount * following).square()
    return {
        "algorithm.value_optimizer": ((config.expectile - below).abs() * (smallest - value).square()).mean(),
        "algorithm.actor_optimizer": -(weight * distribution.log_prob(policy.internal(batch.action))).mean(),
        "algorithm.optimizer": (errors if batch.weight is None else errors * batch.weight).sum(0).mean(),
    }


def after(networks: Mapping[str, Any], batch: Transitions, config: IQLConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the logarithms of deviations [A] of Box actions: they stay between `log_std_min` and 2."""
    named = networks["policy"].named_parameters()
    return {
        f"policy.{name}": each.detach().clamp(config.log_std_min, 2.0)
        for name, each in named
        if name.endswith("log_std")
    }
