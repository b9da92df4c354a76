"""Pure functions: estimators, losses and schedules. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.math.following import successors as successors
    from rlsdk.math.natural_gradient import conjugate_gradient as conjugate_gradient
    from rlsdk.math.natural_gradient import flat_grad as flat_grad
    from rlsdk.math.quantiles import quantile_huber_loss as quantile_huber_loss
    from rlsdk.math.returns import discounted_sums as discounted_sums
    from rlsdk.math.returns import gae as gae

__all__ = ["conjugate_gradient", "discounted_sums", "flat_grad", "gae", "quantile_huber_loss", "successors"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "conjugate_gradient": "rlsdk.math.natural_gradient",
        "flat_grad": "rlsdk.math.natural_gradient",
        **dict.fromkeys(("discounted_sums", "gae"), "rlsdk.math.returns"),
        "quantile_huber_loss": "rlsdk.math.quantiles",
        "successors": "rlsdk.math.following",
    },
)
