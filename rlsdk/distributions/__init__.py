"""Immutable action distributions. Log-probabilities and entropies are summed over action dimensions."""

from typing import TYPE_CHECKING

from rlsdk.distributions.categorical import Bernoulli, Categorical, MultiCategorical, Product
from rlsdk.distributions.gaussian import Gaussian, SquashedGaussian
from rlsdk.runtime.lazy import names_elsewhere

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "MultiCategorical",
    "Product",
    "SquashedGaussian",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
