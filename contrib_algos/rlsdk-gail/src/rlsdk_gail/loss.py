"""The discriminator's loss and the rewards it gives: pure tensor functions. Source: Ho and Ermon 2016, arXiv:1606.03476.

D = sigmoid(logit) is the probability that a step is the expert's.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

SMALLEST = 1e-8
"""Added to probabilities before their logarithm, as the documented implementation does: no reward is above 18.42."""


def discriminator_loss(expert: Tensor, policy: Tensor) -> Tensor:
    """The loss -mean log D of the expert's steps - mean log(1 - D) of the policy's, 0-d (equation 17). Both arguments are
    logits, float [N] and [M]."""
    return softplus(-expert).mean() + softplus(policy).mean()


def bernoulli_entropy(logit: Tensor) -> Tensor:
    """The entropy -D log D - (1 - D) log(1 - D), [N]."""
    return softplus(logit) - logit * torch.sigmoid(logit)


def gradient_penalty(gradient: Tensor) -> Tensor:
    """The penalty mean (|g| - 1)^2, 0-d, where g [N, F] are gradients of the logit with respect to the inputs
    (arXiv:1704.00028, equation 3)."""
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=1)
    return (norm - 1.0).square().mean()


def learned_reward(logit: Tensor, form: str) -> Tensor:
    """The reward of each step, float [N], from its logit [N]. `form`: see the setting `reward`."""
    if form == "constant":
        return torch.ones_like(logit)
    likely = (torch.sigmoid(logit) + SMALLEST).log()
    unlikely = (torch.sigmoid(-logit) + SMALLEST).log()
    return {"positive": -unlikely, "negative": likely, "logit": likely - unlikely}[form]
