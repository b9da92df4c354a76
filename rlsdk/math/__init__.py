"""Pure functions on tensors: estimators and losses."""

from typing import TYPE_CHECKING

from rlsdk.math.surrogate import conjugate_gradient, discounted_sums, flat_grad, gae
from rlsdk.math.values import quantile_huber_loss
from rlsdk.runtime.lazy import names_elsewhere

__all__ = ["conjugate_gradient", "discounted_sums", "flat_grad", "gae", "quantile_huber_loss"]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
