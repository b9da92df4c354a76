"""The Gaussian with independent dimensions, and the same distribution squashed by tanh."""

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
    """The Gaussian N(mean, diag(exp(log_std))^2). `mean` and `log_std` are float [N, A]."""

    mean: Tensor
    log_std: Tensor

    def transform(self, noise: Tensor) -> Tensor:
        """The reparameterised sample mean + std * noise, [N, A], for standard normal `noise` [N, A]."""
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
        """KL(self || other) = sum_a [ log(s2/s1) + (s1^2 + (m1 - m2)^2) / (2 s2^2) - 1/2 ]."""
        variance_ratio = (2.0 * (self.log_std - other.log_std)).exp()
        distance = ((self.mean - other.mean) * (-other.log_std).exp()).square()
        return (other.log_std - self.log_std + 0.5 * (variance_ratio + distance) - 0.5).sum(-1)

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, Tensor]:
        """The gradients [N, A] of a loss with respect to mean and log std, see `ClosedForm.vjp`.

        With z = (a - mean) / std, the log-probability has the derivatives z / std and z^2 - 1. The entropy has 0 and 1.
        """
        precision = (-self.log_std).exp()
        standardised = (action - self.mean) * precision
        per_row = grad_log_prob.unsqueeze(-1)
        spread = (standardised.square() - 1.0) * per_row
        if grad_entropy is not None:
            spread = spread + grad_entropy.unsqueeze(-1)
        return standardised * precision * per_row, spread

    def fisher_product(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """The Fisher information times changes v [N, A] of mean and log std: v / std^2 for the mean, 2 v for log std."""
        return mean * (-2.0 * self.log_std).exp(), 2.0 * log_std


def log_jacobian(raw: Tensor) -> Tensor:
    """log(1 - tanh(raw)^2), [N, A], for actions `raw` [N, A] before tanh. It is exact where tanh saturates."""
    return 2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))


@explains_documented_members
@dataclass(frozen=True, slots=True, eq=False)
class SquashedGaussian:
    """The distribution of tanh(x) for x ~ N(mean, diag(exp(log_std))^2). `mean` and `log_std` are float [N, A].

    Actions lie strictly inside (-1, 1). Source: Haarnoja et al. 2018, arXiv:1801.01290, app. C.
    """

    mean: Tensor
    log_std: Tensor

    @property
    def _before_tanh(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std)

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(reparameterised sample [N, A], its log-density [N]) for standard normal `noise` [N, A].

        The density is computed from the value before tanh, so it is exact where tanh saturates.
        """
        before_tanh = self._before_tanh
        raw = before_tanh.transform(noise)
        return raw.tanh(), before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients [N, A] of a loss with respect to mean and log std.

        `grad_action` [N, A] and `grad_log_prob` [N] are its gradients with respect to the results of `transform(noise)`. With
        raw = atanh(a): da/draw = 1 - a^2, dlog p/draw = 2 a, dlog p/dlog std = -1.
        """
        per_row = grad_log_prob.unsqueeze(-1)
        grad_raw = (1.0 - action.square()) * grad_action + 2.0 * per_row * action
        return grad_raw, grad_raw * self.log_std.exp() * noise - per_row

    def sample(self, generator: Generator) -> Tensor:
        return self._before_tanh.sample(generator).tanh()

    def mode(self) -> Tensor:
        """The median tanh(mean), [N, A], as the deterministic action. The mode of the density has no closed form."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-density [N] of actions [N, A].

        tanh has no inverse at -1 and 1, so actions there get the log-density of the nearest action inside (-1, 1).
        """
        margin = torch.finfo(action.dtype).eps
        raw = action.clamp(-1.0 + margin, 1.0 - margin).atanh()
        return self._before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy [N], with an error below 1e-6 per dimension. No closed form exists.

        It is the entropy of the Gaussian plus the expected log-Jacobian of tanh, which is integrated numerically.
        """
        return self._before_tanh.entropy() + expected_log_jacobian(self.mean, self.log_std.exp()).sum(-1)

    def kl_divergence(self, other: SquashedGaussian) -> Tensor:
        """KL(self || other), [N]. It equals that of the Gaussians: an invertible map of both does not change it."""
        return self._before_tanh.kl_divergence(other._before_tanh)
