"""Immutable action distributions, one file each. Log-probabilities and entropies are summed over action dimensions."""

from rlsdk.distributions.bernoulli import Bernoulli
from rlsdk.distributions.categorical import Categorical, MultiCategorical
from rlsdk.distributions.gaussian import Gaussian, SquashedGaussian
from rlsdk.distributions.least_deviation import LEAST_LOG_STD, with_least_deviation
from rlsdk.distributions.product import Product

__all__ = [
    "LEAST_LOG_STD",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "MultiCategorical",
    "Product",
    "SquashedGaussian",
    "with_least_deviation",
]
