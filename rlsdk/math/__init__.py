"""Pure functions: estimators, losses and schedules. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk.math.natural_gradient import conjugate_gradient as conjugate_gradient
    from rlsdk.math.natural_gradient import flat_grad as flat_grad
    from rlsdk.math.quantiles import quantile_huber_loss as quantile_huber_loss
    from rlsdk.math.returns import gae as gae

__all__ = ["conjugate_gradient", "flat_grad", "gae", "quantile_huber_loss"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "conjugate_gradient": "rlsdk.math.natural_gradient",
        "flat_grad": "rlsdk.math.natural_gradient",
        "gae": "rlsdk.math.returns",
        "quantile_huber_loss": "rlsdk.math.quantiles",
    },
)
