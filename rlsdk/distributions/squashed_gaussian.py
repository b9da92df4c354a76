"""Gaussian pushed through tanh: actions strictly inside (-1, 1). Source: Haarnoja et al. 2018, arXiv:1801.01290, app. C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.distributions.gaussian import Gaussian

EPSILON = 1e-6
"""Added inside the logarithm of the Jacobian, so that a saturated tanh keeps a finite density."""

_RULE = np.polynomial.hermite_e.hermegauss(16)
_NODES: list[float] = _RULE[0].tolist()
_WEIGHTS: list[float] = (_RULE[1] / _RULE[1].sum()).tolist()


def log_jacobian(action: Tensor) -> Tensor:
    """sum_a log(1 - action_a^2 + epsilon) [N], for squashed `action` [N, A]."""
    return (1.0 - action.square() + EPSILON).log().sum(-1)


@dataclass(frozen=True, slots=True, eq=False)
class SquashedGaussian:
    """tanh(x) with x ~ N(mean, diag(exp(log_std))^2); `mean` and `log_std` float [N, A]."""

    mean: Tensor
    log_std: Tensor

    @property
    def _before_tanh(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std)

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised sample [N, A] and its log-density [N] for standard normal `noise` [N, A].

        The density is computed from the unsquashed value, so it stays exact where tanh saturates.
        """
        raw = self._before_tanh.transform(noise)
        action = raw.tanh()
        return action, self._before_tanh.log_prob(raw) - log_jacobian(action)

    def transform_slope(
        self, noise: Tensor, action: Tensor, of_action: Tensor, of_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients [N, A] with respect to mean and log std of a loss, given those with respect to what `transform(noise)`
        gave, [N, A] and [N]. With u = 1 - a^2: da/draw = u, dlog p/draw = 2 a u / (u + epsilon), dlog p/dlog std = -1."""
        slope = 1.0 - action.square()
        per_row = of_log_prob.unsqueeze(-1)
        of_raw = slope * (of_action + 2.0 * per_row * action / (slope + EPSILON))
        return of_raw, of_raw * self.log_std.exp() * noise - per_row

    def sample(self, generator: Generator) -> Tensor:
        return self._before_tanh.sample(generator).tanh()

    def mode(self) -> Tensor:
        """tanh(mean): the median, and what a deterministic policy plays (the density's true mode has no closed form)."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        margin = torch.finfo(action.dtype).eps
        raw = action.clamp(-1.0 + margin, 1.0 - margin).atanh()
        return self._before_tanh.log_prob(raw) - log_jacobian(action)

    def entropy(self) -> Tensor:
        """An estimate, no closed form exists: Gaussian entropy + log-Jacobian by Gauss-Hermite quadrature (16 nodes)."""
        nodes, weights = _hermite(self.mean)
        squashed = torch.tanh(self.mean + self.log_std.exp() * nodes)
        correction = ((1.0 - squashed.square() + EPSILON).log() * weights).sum(0).sum(-1)
        return self._before_tanh.entropy() + correction

    def kl_divergence(self, other: SquashedGaussian) -> Tensor:
        """That of the Gaussians: an invertible map of both sides changes no KL divergence."""
        return self._before_tanh.kl_divergence(other._before_tanh)


def _hermite(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights [16, 1, ..] of the expectation under a standard normal."""
    shape = (-1,) + (1,) * like.dim()
    return like.new_tensor(_NODES).view(shape), like.new_tensor(_WEIGHTS).view(shape)
