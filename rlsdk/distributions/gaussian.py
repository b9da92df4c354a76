"""The Gaussian with independent dimensions, and the same distribution squashed by tanh."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from rlsdk.distributions.categorical import Product
from rlsdk.interfaces import Distribution, explain_names

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@explain_names
@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """The Gaussian N(mean, diag(exp(log_std))^2). `mean` and `log_std` are float [N, A]."""

    mean: Tensor
    log_std: Tensor

    def transform(self, noise: Tensor) -> Tensor:
        """The reparameterized sample mean + std * noise, [N, A], for standard normal `noise` [N, A]."""
        return self.mean + self.log_std.exp() * noise

    def sample(self, generator: Generator) -> Tensor:
        noise = torch.randn(self.mean.shape, generator=generator, device=self.mean.device, dtype=self.mean.dtype)
        return self.transform(noise)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        # times exp(-log std): dividing by a deviation that rounds to 0 would be infinite
        standardized = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * standardized.square() - self.log_std - HALF_LOG_TWO_PI).sum(-1)

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
        standardized = (action - self.mean) * precision
        per_row = grad_log_prob.unsqueeze(-1)
        spread = (standardized.square() - 1.0) * per_row
        if grad_entropy is not None:
            spread = spread + grad_entropy.unsqueeze(-1)
        return standardized * precision * per_row, spread

    def fisher_product(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """The Fisher information times changes v [N, A] of mean and log std: v / std^2 for the mean, 2 v for log std."""
        return mean * (-2.0 * self.log_std).exp(), 2.0 * log_std


def log_jacobian(raw: Tensor) -> Tensor:
    """log(1 - tanh(raw)^2), [N, A], for actions `raw` [N, A] before tanh. It is exact where tanh saturates."""
    # log(1 - tanh^2) itself is log 0 from |raw| = 9 on in float32
    return 2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))


@explain_names
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
        """(reparameterized sample [N, A], its log-density [N]) for standard normal `noise` [N, A].

        The density is computed from the value before tanh, so it is exact where tanh saturates.
        """
        # written out, because this runs twice in every update of SAC: the density of the Gaussian at `raw`, then the
        # log-Jacobian of tanh, as `Gaussian.log_prob` and `log_jacobian` compute them
        raw = self.mean + self.log_std.exp() * noise
        action = raw.tanh()  # first: the order of operations is that in which autograd sums gradients
        standardized = (raw - self.mean) * (-self.log_std).exp()
        log_prob = (-0.5 * standardized.square() - self.log_std - HALF_LOG_TWO_PI).sum(-1)
        return action, log_prob - (2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))).sum(-1)

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients [N, A] of a loss with respect to mean and log std.

        `grad_action` [N, A] and `grad_log_prob` [N] are its gradients with respect to the results of `transform(noise)`. With
        raw = atanh(a): da/draw = 1 - a^2, dlog p/draw = 2 a, dlog p/dlog std = -1.
        """
        per_row = grad_log_prob.unsqueeze(-1)
        # from the action and not from tanh again, which saves evaluating it
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
        # environments clip actions to the bounds, where atanh is infinite
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


LOG_TWO = math.log(2.0)
NARROW = 0.7
"""The standard deviation below which Gauss-Hermite quadrature of the log-Jacobian has an error below 1e-6. Above it,
Gauss-Legendre quadrature has."""
REACH = 9.0
"""The upper limit of integration: for a larger |x|, log(1 + exp(-2 |x|)) is below 1e-7."""
# positive nodes and their weights, as numpy.polynomial computes them for 16 nodes; importing it takes a megabyte
# fmt: off
HERMITE = [
    [0.3867606045005574, 1.1638291005549648, 1.9519803457163334, 2.7602450476307014,
     3.6008736241715487, 4.492955302520011, 5.472225705949343, 6.630878198393129],
    [0.7183207579543952, 0.3968954420965932, 0.1185252972094964, 0.018215511261108867,
     0.0013184486889798702, 3.8351493221254406e-05, 3.282362588816531e-07, 3.754464735236075e-10],
]
LEGENDRE = [
    [0.09501250983763744, 0.2816035507792589, 0.45801677765722737, 0.6178762444026438,
     0.755404408355003, 0.8656312023878318, 0.9445750230732326, 0.9894009349916499],
    [0.18945061045506864, 0.18260341504492364, 0.16915651939500265, 0.1495959888165767,
     0.12462897125553407, 0.0951585116824926, 0.062253523938647456, 0.027152459411754176],
]


# fmt: on


def _mirrored(rule: list[list[float]]) -> list[list[float]]:
    """All nodes of a quadrature rule, from its positive ones, and their weights."""
    nodes, weights = rule
    return [[-node for node in reversed(nodes)] + nodes, weights[::-1] + weights]


_HERMITE, _LEGENDRE = _mirrored(HERMITE), _mirrored(LEGENDRE)


def expected_log_jacobian(mean: Tensor, std: Tensor) -> Tensor:
    """The expectation of log(1 - tanh(x)^2) for x ~ N(mean, std^2), for each element of [..], with an error below 1e-6.

    A deviation below `NARROW` takes Gauss-Hermite quadrature. Otherwise the logarithm is written as
    log 4 - 2 |x| - 2 log(1 + exp(-2 |x|)). The expectations of the first two terms have closed forms. The expectation of the
    last term is integrated over 0 <= |x| <= `REACH` by Gauss-Legendre quadrature.
    """
    shape = (-1,) + (1,) * mean.dim()
    nodes, weights = (mean.new_tensor(values).view(shape) for values in _HERMITE)
    raw = mean + std.clamp(max=NARROW) * nodes
    narrow = (2.0 * (LOG_TWO - raw - softplus(-2.0 * raw)) * (weights / weights.sum())).sum(0)
    places, shares = (mean.new_tensor(values).view(shape) for values in _LEGENDRE)
    distance, wide_std = (places + 1.0) * (0.5 * REACH), std.clamp(min=NARROW)
    rest = (-2.0 * distance).exp().log1p() * shares * (0.5 * REACH)
    apart, opposite = ((distance - mean) / wide_std).square(), ((distance + mean) / wide_std).square()
    density = ((-0.5 * apart).exp() + (-0.5 * opposite).exp()) / (wide_std * math.sqrt(2.0 * math.pi))
    z = mean / wide_std
    length = wide_std * math.sqrt(2.0 / math.pi) * (-0.5 * z.square()).exp() + mean * torch.erf(z * math.sqrt(0.5))
    wide = 2.0 * (LOG_TWO - length - (rest * density).sum(0))
    # each rule is exact to 1e-6 on its own side only; both are finite everywhere, so gradients are too
    return torch.where(std < NARROW, narrow, wide)


LEAST_LOG_STD = -2.0


def with_least_deviation(distribution: Distribution, log_std: float = LEAST_LOG_STD) -> Distribution:
    """The distribution with the log std of its Gaussians clamped to at least `log_std`; clamped entries get gradient 0.

    Without the bound, the likelihood of noiseless actions has no maximum: it grows as the deviation shrinks.
    """
    if isinstance(distribution, Gaussian | SquashedGaussian):
        return type(distribution)(distribution.mean, distribution.log_std.clamp(min=log_std))
    if not isinstance(distribution, Product):
        return distribution
    parts: Mapping[str, Distribution] | tuple[Distribution, ...] = distribution.parts
    if isinstance(parts, tuple):
        return cast("Distribution", Product(tuple(with_least_deviation(part, log_std) for part in parts)))
    return cast("Distribution", Product({key: with_least_deviation(part, log_std) for key, part in parts.items()}))
