"""A lower bound on the standard deviation of Gaussians, for fitting recorded actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rlsdk.distributions.gaussian import Gaussian, SquashedGaussian
from rlsdk.distributions.product import Product
from rlsdk.interfaces import Distribution

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
