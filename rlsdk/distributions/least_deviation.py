"""Gaussians whose deviation is bounded from below, for fitting recorded actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rlsdk.distributions.gaussian import Gaussian, SquashedGaussian
from rlsdk.distributions.product import Product
from rlsdk.interfaces import Distribution

LEAST_LOG_STD = -2.0


def with_least_deviation(distribution: Distribution, log_std: float = LEAST_LOG_STD) -> Distribution:
    """The distribution with no log std of a Gaussian below `log_std`. There the gradient is 0: the likelihood of actions
    without noise has no maximum, it grows with every smaller deviation."""
    if isinstance(distribution, Gaussian | SquashedGaussian):
        return type(distribution)(distribution.mean, distribution.log_std.clamp(min=log_std))
    if not isinstance(distribution, Product):
        return distribution
    parts: Mapping[str, Distribution] | tuple[Distribution, ...] = distribution.parts
    if isinstance(parts, tuple):
        return cast("Distribution", Product(tuple(with_least_deviation(part, log_std) for part in parts)))
    return cast("Distribution", Product({key: with_least_deviation(part, log_std) for key, part in parts.items()}))
