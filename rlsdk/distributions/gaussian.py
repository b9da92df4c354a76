"""Gaussian with independent dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """N(mean, diag(exp(log_std))^2); `mean` and `log_std` float [N, A]."""

    mean: Tensor
    log_std: Tensor

    def transform(self, noise: Tensor) -> Tensor:
        """mean + std * noise [N, A]: the reparameterised sample for standard normal `noise` [N, A]."""
        return self.mean + self.log_std.exp() * noise

    def sample(self, generator: Generator) -> Tensor:
        noise = torch.randn(self.mean.shape, generator=generator, device=self.mean.device, dtype=self.mean.dtype)
        return self.transform(noise)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        standardised = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * standardised.square() - self.log_std - HALF_LOG_TWO_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 + HALF_LOG_TWO_PI).expand_as(self.mean).sum(-1)

    def kl_divergence(self, other: Gaussian) -> Tensor:
        """sum_a [ log(s2/s1) + (s1^2 + (m1 - m2)^2) / (2 s2^2) - 1/2 ]."""
        variance_ratio = (2.0 * (self.log_std - other.log_std)).exp()
        distance = ((self.mean - other.mean) * (-other.log_std).exp()).square()
        return (other.log_std - self.log_std + 0.5 * (variance_ratio + distance) - 0.5).sum(-1)

    def slope(self, action: Tensor, of_log_prob: Tensor, of_entropy: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradients with respect to mean and log std, see `ClosedForm`: z / std and z^2 - 1, with z = (a - mean) / std; the
        entropy's are 0 and 1."""
        precision = (-self.log_std).exp()
        standardised = (action - self.mean) * precision
        pull = of_log_prob.unsqueeze(-1)
        spread = (standardised.square() - 1.0) * pull
        if of_entropy is not None:
            spread = spread + of_entropy.unsqueeze(-1)
        return standardised * precision * pull, spread

    def curvature(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """Fisher information times a change of mean and log std: v / std^2 and 2 v."""
        return mean * (-2.0 * self.log_std).exp(), 2.0 * log_std
