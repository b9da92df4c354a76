"""The critics' part of SAC. Source: Haarnoja et al. 2018, arXiv:1812.05905."""

from __future__ import annotations

from torch import Tensor

from rlsdk.math.value_losses import clipped_double_q, half_squared_error, minimum_value
from rlsdk.records import Transitions
from rlsdk_sac.config import SACConfig


class MinimumOfCritics:
    """The smallest of C values counts, against overestimation; the rest of the update is `rlsdk.updates.SoftActorCritic`."""

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """r + discount * (min Q' - alpha log pi(a'|s')) [N, 1], equation 3."""
        return clipped_double_q(next_values, -alpha * next_log_prob, batch.reward, batch.discount)

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """(J_Q, 0-d, equation 5; its gradient), for values [C, N, 1]."""
        return half_squared_error(values, target, weight=weight)

    def actor_value(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(mean of min Q, 0-d, equation 7; its gradient), for values [C, N, 1]."""
        return minimum_value(values)

    def reconfigure(self, config: SACConfig) -> None:
        """There is nothing to set."""
