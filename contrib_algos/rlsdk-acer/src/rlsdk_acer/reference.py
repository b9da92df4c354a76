"""The losses of ACER in plain formulas, for the clause `formula.reference` of the contract kit (arXiv:1611.01224)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlsdk.records import Observation, Sequences
from rlsdk.tree import map_tensors
from rlsdk_acer.config import ACERConfig
from rlsdk_acer.network import ACERNetwork, Carry

Networks = Mapping[str, Any]
Batch = Sequences[Carry]
SETTINGS: dict[str, object] = {"correction_term": 1.5}
"""Settings for the clause: importance weights of so short a training are rarely above 10."""
SMALL = 1e-6
"""Added to probabilities before a logarithm or a division."""


def losses(networks: Networks, batch: Batch, config: ACERConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the loss of sequences [T, N], 0-d, for networks without memory: the mean over the steps that count."""
    network, average, steps = networks["policy"], networks["algorithm.average.network"], batch.steps
    seen = map_tensors(lambda leaf: leaf.flatten(0, 1), steps.observation)
    action = (steps.action.long().flatten() - network.start).unsqueeze(-1)
    probs, values = _evaluated(network, seen)
    fixed, known = probs.detach().requires_grad_(), values.detach()
    with torch.no_grad():
        value = (probs * known).sum(-1)
        ratios = probs / (steps.extras["probs"].flatten(0, 1) + SMALL)
        target = _retrace(network, batch, ratios.gather(-1, action), known.gather(-1, action), value)
        weight = ratios.gather(-1, action).squeeze(-1).clamp(max=config.correction_term) * (target - value)
        rest = (1.0 - config.correction_term / (ratios + SMALL)).clamp(min=0.0) * probs * (known - value.unsqueeze(-1))
    log_probs = (fixed + SMALL).log()
    # equation 9: the truncated term, and the correction over all actions
    objective = weight * log_probs.gather(-1, action).squeeze(-1) + (rest * log_probs).sum(-1)
    objective = objective - config.ent_coef * (fixed * log_probs).sum(-1)
    step = torch.autograd.grad(objective.sum(), fixed)[0]
    if config.trust_region:  # equation 12
        k = -_evaluated(average, seen)[0].detach() / (probs.detach() + SMALL)
        excess = ((k * step).sum(-1, keepdim=True) - config.delta).clamp(min=0.0)
        step = step - excess / k.square().sum(-1, keepdim=True) * k
    errors = (target - values.gather(-1, action).squeeze(-1)).square() / 2
    rows = config.q_coef * errors - (step * probs).sum(-1)
    return {"algorithm.optimizer": rows[batch.loss_mask.flatten()].sum() / max(1, int(batch.loss_mask.sum()))}


def after(networks: Networks, batch: Batch, config: ACERConfig, noise: float) -> Mapping[str, Tensor]:
    """Return the parameters [..] of the average policy (section 3.3)."""
    path = "algorithm.average.network"
    pairs = zip(networks[path].named_parameters(), networks["policy"].parameters(), strict=True)
    return {f"{path}.{n}": (config.alpha * a + (1.0 - config.alpha) * p).detach() for (n, a), p in pairs}


def _evaluated(network: ACERNetwork, seen: Observation) -> tuple[Tensor, Tensor]:
    """Return (probabilities, values) of all actions, [N, A] each."""
    latent = network.encoder(seen.features)
    logits = network.head(network.body(latent))
    if seen.action_mask is not None:
        logits = logits.masked_fill(~seen.action_mask, -torch.inf)
    return logits.softmax(-1), network.qf(latent)


def _retrace(network: ACERNetwork, batch: Batch, ratio: Tensor, taken: Tensor, value: Tensor) -> Tensor:
    """Return the targets [T * N] of equation 5, for importance weights and values of the actions taken, [T * N, 1]."""
    reward, shape = batch.steps.reward, batch.steps.reward.shape
    ratio, taken, value = (each.view(shape) for each in (ratio, taken, value))
    probs, values = _evaluated(network, map_tensors(lambda leaf: leaf.flatten(0, 1), batch.next_observation))
    end, target = (probs * values).sum(-1).view(shape), torch.zeros_like(reward)
    for t in reversed(range(len(reward))):
        later = end[t]
        if t + 1 < len(reward):
            corrected = ratio[t + 1].clamp(max=1.0) * (target[t + 1] - taken[t + 1]) + value[t + 1]
            later = torch.where(batch.continues[t], corrected, end[t])
        target[t] = reward[t] + batch.discount[t] * later
    return target.flatten()
