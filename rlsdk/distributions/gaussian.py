"""Gaussian with independent dimensions, and the same pushed through tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from rlsdk.distributions.documented_members import explains_documented_members
from rlsdk.distributions.expected_log_jacobian import LOG_TWO, expected_log_jacobian

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@explains_documented_members
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

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradients [N, A] with respect to mean and log std, see `ClosedForm`: z / std and z^2 - 1, with z = (a - mean) / std;
        the entropy's are 0 and 1."""
        precision = (-self.log_std).exp()
        standardised = (action - self.mean) * precision
        per_row = grad_log_prob.unsqueeze(-1)
        spread = (standardised.square() - 1.0) * per_row
        if grad_entropy is not None:
            spread = spread + grad_entropy.unsqueeze(-1)
        return standardised * precision * per_row, spread

    def fisher_product(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """Fisher information times changes [N, A] of mean and log std: v / std^2 and 2 v."""
        return mean * (-2.0 * self.log_std).exp(), 2.0 * log_std


def log_jacobian(raw: Tensor) -> Tensor:
    """log(1 - tanh(raw)^2) element by element, for unsquashed `raw` [N, A]; exact where tanh saturates."""
    return 2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))


@explains_documented_members
@dataclass(frozen=True, slots=True, eq=False)
class SquashedGaussian:
    """tanh(x) with x ~ N(mean, diag(exp(log_std))^2); `mean` and `log_std` float [N, A]. Actions lie strictly inside (-1, 1).

    Source: Haarnoja et al. 2018, arXiv:1801.01290, app. C.
    """

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
        return raw.tanh(), self._before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients [N, A] with respect to mean and log std of a loss, given those with respect to what `transform(noise)`
        gave, [N, A] and [N]. da/draw = 1 - a^2, dlog p/draw = 2 a, dlog p/dlog std = -1."""
        per_row = grad_log_prob.unsqueeze(-1)
        grad_raw = (1.0 - action.square()) * grad_action + 2.0 * per_row * action
        return grad_raw, grad_raw * self.log_std.exp() * noise - per_row

    def sample(self, generator: Generator) -> Tensor:
        return self._before_tanh.sample(generator).tanh()

    def mode(self) -> Tensor:
        """tanh(mean) [N, A]: the median, which a deterministic policy plays (the density's mode has no closed form)."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """[N]. Actions [N, A] at the bounds get the log-density of the nearest ones inside: tanh saturates there and has no
        inverse."""
        margin = torch.finfo(action.dtype).eps
        raw = action.clamp(-1.0 + margin, 1.0 - margin).atanh()
        return self._before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def entropy(self) -> Tensor:
        """[N], to 1e-6 per dimension: the Gaussian's entropy + the mean log-Jacobian by quadrature (no closed form exists)."""
        return self._before_tanh.entropy() + expected_log_jacobian(self.mean, self.log_std.exp()).sum(-1)

    def kl_divergence(self, other: SquashedGaussian) -> Tensor:
        """That of the Gaussians, [N]: an invertible map of both sides changes no KL divergence."""
        return self._before_tanh.kl_divergence(other._before_tanh)
