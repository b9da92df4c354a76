"""Pure functions: estimators, losses and schedules. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.lazy import attach

if TYPE_CHECKING:
    from rlsdk.math.quantiles import quantile_huber_loss as quantile_huber_loss

__all__ = ["quantile_huber_loss"]

__getattr__, __dir__ = attach(__name__, {"quantile_huber_loss": "rlsdk.math.quantiles"})
