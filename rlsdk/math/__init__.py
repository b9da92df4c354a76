"""Pure functions on tensors: estimators and losses."""

from rlsdk.math.natural_gradient import conjugate_gradient, flat_grad
from rlsdk.math.quantiles import quantile_huber_loss
from rlsdk.math.returns import discounted_sums, gae

__all__ = ["conjugate_gradient", "discounted_sums", "flat_grad", "gae", "quantile_huber_loss"]
