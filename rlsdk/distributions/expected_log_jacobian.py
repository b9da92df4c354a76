"""The expectation of log(1 - tanh(x)^2) under a Gaussian."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

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
    return torch.where(std < NARROW, narrow, wide)
