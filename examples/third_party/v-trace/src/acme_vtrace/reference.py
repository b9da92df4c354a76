"""The loss of V-trace in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1802.01561)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acme_vtrace.config import VTraceConfig
from rlsdk.records import Sequences
from rlsdk.tree import map_tensors


def losses(
    networks: Mapping[str, Any], batch: Sequences[Any], config: VTraceConfig, noise: float
) -> Mapping[str, Tensor]:
    """Return the loss of sequences [T, N], 0-d. The targets are those of equation 1, written as the recursion of remark 1."""
    policy, steps = networks["policy"], batch.steps
    seen, following = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation, batch.next_observation))
    shape, chosen = steps.reward.shape, policy.distribution(seen)
    log_prob = chosen.log_prob(steps.action.flatten() - policy.start).view(shape)
    value = policy.value(seen).view(shape)
    with torch.no_grad():
        ratio = torch.exp(log_prob) / torch.exp(steps.extras["log_prob"])
        rho, c = ratio.clamp(max=config.clip_rho), ratio.clamp(max=config.clip_c)
        bootstrap = policy.value(following).view(shape)
        target, advantage = torch.zeros_like(value), torch.zeros_like(value)
        for t in reversed(range(len(value))):
            later = bootstrap[t].clone()  # v of the next step
            if t + 1 < len(value):
                later = torch.where(batch.continues[t], bootstrap[t] + target[t + 1] - value[t + 1], later)
            delta = rho[t] * (steps.reward[t] + batch.discount[t] * bootstrap[t] - value[t])
            target[t] = value[t] + delta + batch.discount[t] * c[t] * (later - bootstrap[t])
            advantage[t] = rho[t] * (steps.reward[t] + batch.discount[t] * later - value[t])
    terms = -log_prob * advantage + config.vf_coef * (target - value).square()
    terms = terms - config.ent_coef * chosen.entropy().view(shape)
    return {"algorithm.optimizer": terms[batch.loss_mask].sum() / max(1, int(batch.loss_mask.sum()))}
