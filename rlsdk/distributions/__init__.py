"""Immutable action distributions, one file each. Results have the batch shape: the event axis is summed already."""

from rlsdk.distributions.gaussian import Gaussian
from rlsdk.distributions.squashed_gaussian import SquashedGaussian

__all__ = ["Gaussian", "SquashedGaussian"]
