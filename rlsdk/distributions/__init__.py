"""Immutable action distributions, one file each. Results have the batch shape: the event axis is summed already."""

from rlsdk.distributions.bernoulli import Bernoulli
from rlsdk.distributions.categorical import Categorical, MultiCategorical
from rlsdk.distributions.gaussian import Gaussian, SquashedGaussian
from rlsdk.distributions.product import Product

__all__ = ["Bernoulli", "Categorical", "Gaussian", "MultiCategorical", "Product", "SquashedGaussian"]
