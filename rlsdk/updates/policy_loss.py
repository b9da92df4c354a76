"""The loss of actor-critic methods with its gradients in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from rlsdk.kernels import KernelChoice, factory
from rlsdk.kernels.protocol import (
    Evaluation,
    LossGrads,
    LossRows,
    LossTerms,
    PolicyEvaluator,
    PolicyLoss,
    PolicySteps,
    RowsT,
)
from rlsdk.math.surrogate import (
    approximate_kl,
    clipped_surrogate,
    clipped_surrogate_grad,
    normalized,
    value_error,
    value_error_grad,
)
from rlsdk.networks.actor_critic import ActorCritic


def policy_loss_of(network: ActorCritic) -> PolicyLoss:
    """Return the fastest implementation of the loss for this network."""
    device = next(network.parameters()).device.type
    return factory.policy_loss(KernelChoice(network.kernel_setting, device=device), policy_loss)


def policy_steps_of(evaluator: PolicyEvaluator[RowsT], loss: PolicyLoss) -> PolicySteps | None:
    """Return what makes several gradient steps in one call; None: call `evaluator`, `loss` and the optimiser for each step."""
    return factory.policy_steps(evaluator, loss)


def policy_loss(rows: LossRows, now: Evaluation, terms: LossTerms) -> tuple[Tensor, LossGrads]:
    """Return (the means named in `rlsdk.kernels.protocol.LOSSES`, [6]; the gradients of the loss).

    The gradients are float [N], with respect to log-probability, entropy and value.
    """
    weight = rows.weight
    advantage = normalized(rows.advantage, weight) if terms.normalize_advantage else rows.advantage
    values = value_error(now.value, rows.value, rows.target, terms.clip_value)
    share = torch.full_like(now.value, 1.0 / len(rows)) if weight is None else weight / weight.sum()
    if terms.clip is None:
        policy, grad_log_prob = -advantage * now.log_prob, -advantage * share
        divergence = outside = torch.zeros_like(policy)
    else:
        log_ratio = now.log_prob - rows.log_prob
        ratio = log_ratio.exp()
        policy, divergence = clipped_surrogate(ratio, advantage, terms.clip), approximate_kl(ratio, log_ratio)
        outside = ((ratio - 1.0).abs() > terms.clip).to(policy.dtype)
        grad_log_prob = clipped_surrogate_grad(ratio, advantage, terms.clip) * share
    losses = policy - terms.ent_coef * now.entropy + terms.vf_coef * values
    means = torch.stack((policy, values, -now.entropy, divergence, outside, losses)) @ share
    grad_entropy = -terms.ent_coef * share if terms.ent_coef else None
    grad_value = value_error_grad(now.value, rows.value, rows.target, terms.clip_value) * (share * terms.vf_coef)
    return means, (grad_log_prob, grad_entropy, grad_value)
