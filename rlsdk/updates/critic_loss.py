"""Protocols of the losses of values and of critics."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from rlsdk.records import Transitions

ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)


class ValueLoss(Protocol):
    """A loss of predicted values."""

    def __call__(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, its gradient with respect to `values`).

        Args:
            values: predictions [C, N, K] of C critics, or for C choices of an action.
            target: targets whose shape fits the values.
            weight: the weight of each row, float [N]; None = 1.
        """
        ...


class CriticLoss(Protocol[ConfigT_contra]):
    """The critic's part of a soft actor-critic algorithm: its target and its losses.

    Each of C critics predicts K values: one value of the return, or K quantiles of it.
    """

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """Return the regression targets of the critics, float [N, M].

        Args:
            next_values: predictions of the target critics at (s', a'), float [C, N, K].
            next_log_prob: log pi(a'|s') of the policy's next action, float [N].
            alpha: the entropy coefficient, 0-d.
            batch: contains `reward` and `discount`, float [N]; `discount` is 0 where the episode terminated.
        """
        ...

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, its gradient with respect to `values`).

        Args:
            values: predictions [C, N, K] of C critics.
            target: [N, M].
            weight: the weight of each row, float [N]; None = 1.
        """
        ...

    def actor_value(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mean Q(s, pi(s)) 0-d, its gradient with respect to `values` [C, N, K]). The actor maximises this mean."""
        ...

    def reconfigure(self, config: ConfigT_contra) -> None:
        """Use the settings of `config` from the next update on."""
        ...
