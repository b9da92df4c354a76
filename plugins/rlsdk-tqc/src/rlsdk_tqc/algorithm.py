"""Truncated quantile critics. Source: Kuznetsov et al. 2020, arXiv:2005.04269, algorithm 1."""

from __future__ import annotations

from torch import Tensor

from rlsdk.math import quantile_huber
from rlsdk.networks import mean_value
from rlsdk.records import Transitions
from rlsdk_tqc.config import TQCConfig
from rlsdk_tqc.loss import truncated_target


class TruncatedQuantiles:
    """The target and the loss of TQC's critics. `rlsdk.updates.SoftActorCritic` does the rest of algorithm 1, as for SAC.

    Each of C critics predicts K quantiles of the return's distribution Z(s, a).
    """

    actor_value = staticmethod(mean_value)
    """The mean of all quantiles, equation 15. The actor's loss truncates nothing."""

    def __init__(self, config: TQCConfig) -> None:
        self.keep = config.kept_quantiles

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """The target atoms Y(s, a) [N, keep] of equations 10 to 12; see `truncated_target`."""
        return truncated_target(next_values, next_log_prob, batch.reward, batch.discount, alpha, keep=self.keep)

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (the loss J_Z of equations 13 and 14, 0-d; its gradient) for quantiles [C, N, K] and the target [N, keep]."""
        return quantile_huber(values, target, sum_over_quantiles=False, weight=weight)

    def reconfigure(self, config: TQCConfig) -> None:
        self.keep = config.kept_quantiles
