"""Pure functions on tensors: estimators and losses."""

from typing import TYPE_CHECKING

from rlsdk.math.natural_gradient import conjugate_gradient, flat_grad
from rlsdk.math.quantiles import quantile_huber_loss
from rlsdk.math.returns import discounted_sums, gae
from rlsdk.runtime.documented_names import names_elsewhere

__all__ = ["conjugate_gradient", "discounted_sums", "flat_grad", "gae", "quantile_huber_loss"]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
