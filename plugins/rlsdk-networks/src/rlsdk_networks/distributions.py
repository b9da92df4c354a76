"""Beta and Dirichlet distributions over bounded actions and over shares.

Sources: Chou et al. 2017, "Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement Learning using
the Beta Distribution"; Marsaglia and Tsang 2000, "A simple method for generating gamma variables".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import explain_names

MARGIN = 1e-5
"""Actions stay this far inside (0, 1). Nearer to a bound, float32 rounds an action in environment units so that the logarithm
of its distance changes."""


def standard_gamma(shape: Tensor, generator: Generator) -> Tensor:
    """Sample the gamma distribution with scale 1 for shapes >= 1, float [..] -> [..], by rejection."""
    d = shape.detach() - 1.0 / 3.0
    c = (9.0 * d).rsqrt()
    found, missing = torch.zeros_like(d), torch.ones_like(d, dtype=torch.bool)
    # each round accepts at least 95 of 100 numbers
    while bool(missing.any()):
        normal = torch.randn(d.shape, generator=generator, device=d.device, dtype=d.dtype)
        uniform = torch.rand(d.shape, generator=generator, device=d.device, dtype=d.dtype)
        v = (1.0 + c * normal) ** 3
        bound = 0.5 * normal.square() + d - d * v + d * v.clamp_min(torch.finfo(d.dtype).tiny).log()
        accepted = missing & (v > 0.0) & (uniform.log() < bound)
        found = torch.where(accepted, d * v, found)
        missing = missing & ~accepted
    return found


@explain_names
@dataclass(frozen=True, slots=True, eq=False)
class Beta:
    """Independent beta distributions over (0, 1). `alpha` and `beta`, float [N, A], are above 1: each has one mode inside.

    Logarithms of gamma functions are computed in float64, because those of large parameters nearly cancel.
    """

    alpha: Tensor
    beta: Tensor

    def sample(self, generator: Generator) -> Tensor:
        """float [N, A], from `MARGIN` to 1 - `MARGIN`."""
        both = standard_gamma(torch.stack([self.alpha, self.beta]), generator)
        return (both[0] / both.sum(0)).clamp(MARGIN, 1.0 - MARGIN)

    def mode(self) -> Tensor:
        """float [N, A]."""
        return ((self.alpha - 1.0) / (self.alpha + self.beta - 2.0)).clamp(MARGIN, 1.0 - MARGIN)

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-density [N] of actions [N, A] in [0, 1]. Those nearer to a bound than `MARGIN` get that at the margin."""
        alpha, beta, x = self.alpha.double(), self.beta.double(), action.double().clamp(MARGIN, 1.0 - MARGIN)
        density = (alpha - 1.0) * x.log() + (beta - 1.0) * torch.log1p(-x) - _log_beta(alpha, beta)
        return density.sum(-1).to(self.alpha.dtype)

    def entropy(self) -> Tensor:
        """The differential entropy [N] over (0, 1)."""
        alpha, beta = self.alpha.double(), self.beta.double()
        each = _log_beta(alpha, beta) + (alpha + beta - 2.0) * torch.digamma(alpha + beta)
        each = each - (alpha - 1.0) * torch.digamma(alpha) - (beta - 1.0) * torch.digamma(beta)
        return each.sum(-1).to(self.alpha.dtype)

    def kl_divergence(self, other: Beta) -> Tensor:
        """KL(self || other), [N]."""
        alpha, beta, a, b = (each.double() for each in (self.alpha, self.beta, other.alpha, other.beta))
        each = _log_beta(a, b) - _log_beta(alpha, beta) + (alpha - a) * torch.digamma(alpha)
        each = each + (beta - b) * torch.digamma(beta) + (a - alpha + b - beta) * torch.digamma(alpha + beta)
        return each.sum(-1).to(self.alpha.dtype)


def _lgamma(x: Tensor) -> Tensor:
    """The logarithm of the gamma function, [..] -> [..]; 0 while a policy is exported."""
    # exported policies return no log-densities, and ONNX has no such function
    return torch.zeros_like(x) if torch.compiler.is_exporting() else torch.lgamma(x)


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    """The logarithm of the beta function, [N, A]."""
    return _lgamma(alpha) + _lgamma(beta) - _lgamma(alpha + beta)


@explain_names
@dataclass(frozen=True, slots=True, eq=False)
class Dirichlet:
    """A distribution over shares: K numbers above 0 whose sum is 1. `concentration`, float [N, K], is above 1.

    The density is that with respect to the first K - 1 shares, as in scipy and torch.
    """

    concentration: Tensor

    def sample(self, generator: Generator) -> Tensor:
        """float [N, K]; the sum of a row is 1 up to rounding."""
        gamma = standard_gamma(self.concentration, generator)
        return _inside(gamma / gamma.sum(-1, keepdim=True))

    def mode(self) -> Tensor:
        """float [N, K]."""
        above = self.concentration - 1.0
        return _inside(above / above.sum(-1, keepdim=True))

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-density [N] of shares [N, K]. Shares below `MARGIN` get the density at the margin."""
        concentration, shares = self.concentration.double(), action.double().clamp_min(MARGIN)
        density = ((concentration - 1.0) * shares.log()).sum(-1) - _log_normalizer(concentration)
        return density.to(self.concentration.dtype)

    def entropy(self) -> Tensor:
        """The differential entropy [N] over the first K - 1 shares."""
        concentration = self.concentration.double()
        total, count = concentration.sum(-1), concentration.shape[-1]
        rest = ((concentration - 1.0) * torch.digamma(concentration)).sum(-1)
        found = _log_normalizer(concentration) + (total - count) * torch.digamma(total) - rest
        return found.to(self.concentration.dtype)

    def kl_divergence(self, other: Dirichlet) -> Tensor:
        """KL(self || other), [N]."""
        mine, theirs = self.concentration.double(), other.concentration.double()
        expected = torch.digamma(mine) - torch.digamma(mine.sum(-1, keepdim=True))
        found = _log_normalizer(theirs) - _log_normalizer(mine) + ((mine - theirs) * expected).sum(-1)
        return found.to(self.concentration.dtype)


def _inside(shares: Tensor) -> Tensor:
    """Shares [N, K] of at least `MARGIN`, whose sum is 1."""
    raised = shares.clamp_min(MARGIN)
    return raised / raised.sum(-1, keepdim=True)


def _log_normalizer(concentration: Tensor) -> Tensor:
    """The logarithm of the multivariate beta function, [N, K] -> [N]."""
    return _lgamma(concentration).sum(-1) - _lgamma(concentration.sum(-1))
