"""Gaussian pushed through tanh: actions strictly inside (-1, 1). Source: Haarnoja et al. 2018, arXiv:1801.01290, app. C."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from rlsdk.distributions.expected_log_jacobian import LOG_TWO, expected_log_jacobian
from rlsdk.distributions.gaussian import Gaussian


def log_jacobian(raw: Tensor) -> Tensor:
    """log(1 - tanh(raw)^2) element by element, for unsquashed `raw` [N, A]; exact where tanh saturates."""
    return 2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))


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
        return raw.tanh(), self._before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def transform_slope(
        self, noise: Tensor, action: Tensor, of_action: Tensor, of_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients [N, A] with respect to mean and log std of a loss, given those with respect to what `transform(noise)`
        gave, [N, A] and [N]. da/draw = 1 - a^2, dlog p/draw = 2 a, dlog p/dlog std = -1."""
        per_row = of_log_prob.unsqueeze(-1)
        of_raw = (1.0 - action.square()) * of_action + 2.0 * per_row * action
        return of_raw, of_raw * self.log_std.exp() * noise - per_row

    def sample(self, generator: Generator) -> Tensor:
        return self._before_tanh.sample(generator).tanh()

    def mode(self) -> Tensor:
        """tanh(mean): the median, and what a deterministic policy plays (the density's true mode has no closed form)."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """Actions at the bounds get the log-density of the nearest ones inside: tanh saturates there, so that the unsquashed
        value is not known."""
        margin = torch.finfo(action.dtype).eps
        raw = action.clamp(-1.0 + margin, 1.0 - margin).atanh()
        return self._before_tanh.log_prob(raw) - log_jacobian(raw).sum(-1)

    def entropy(self) -> Tensor:
        """An estimate to 1e-6 per dimension, no closed form exists: Gaussian entropy + mean log-Jacobian by quadrature."""
        return self._before_tanh.entropy() + expected_log_jacobian(self.mean, self.log_std.exp()).sum(-1)

    def kl_divergence(self, other: SquashedGaussian) -> Tensor:
        """That of the Gaussians: an invertible map of both sides changes no KL divergence."""
        return self._before_tanh.kl_divergence(other._before_tanh)
