"""The target and the loss of SAC's critics. Source: Haarnoja et al. 2018, arXiv:1812.05905."""

from __future__ import annotations

from torch import Tensor

from rlsdk.math import clipped_double_q, half_squared_error
from rlsdk.networks import mean_of_smallest
from rlsdk.records import Transitions
from rlsdk_sac.config import SACConfig


class MinimumOfCritics:
    """Uses the smallest value of C critics, against overestimation. `rlsdk.updates.SoftActorCritic` does the rest."""

    actor_value = staticmethod(mean_of_smallest)
    """The mean of min Q in equation 7."""

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """The target r + discount * (min Q' - alpha log pi(a'|s')) [N, 1] of equation 3."""
        return clipped_double_q(next_values, -alpha * next_log_prob, batch.reward, batch.discount)

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (the loss J_Q of equation 5, 0-d; its gradient) for values [C, N, 1]."""
        return half_squared_error(values, target, weight=weight)

    def reconfigure(self, config: SACConfig) -> None:
        """Do nothing: this part has no settings."""
