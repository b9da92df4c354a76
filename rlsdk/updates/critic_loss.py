"""Losses of predicted values, and the critics' part of a soft actor-critic update."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from rlsdk.records import Transitions

ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)


class ValueLoss(Protocol):
    """A loss of predicted values."""

    def __call__(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """(loss 0-d, its gradient with respect to `values`), for values [C, N, K] of C critics or choices, and targets that fit
        them; `weight` of each row, float [N] or None = 1."""
        ...


class CriticLoss(Protocol[ConfigT_contra]):
    """What the algorithms of the family differ in. C critics predict K values each: 1, or quantiles of the return."""

    def target(self, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor, batch: Transitions) -> Tensor:
        """What the critics are regressed on, float [N, M].

        Args:
            next_values: of the target critics at (s', a'), float [C, N, K].
            next_log_prob: log pi(a'|s') of the policy's next action, float [N].
            alpha: weight of the entropy, 0-d.
            batch: with `reward` and `discount`, which is 0 where the episode terminated, float [N].
        """
        ...

    def loss(self, values: Tensor, target: Tensor, *, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """(loss 0-d, its gradient with respect to `values`), for values [C, N, K] and the target [N, M]; `weight` of each row,
        float [N] or None = 1."""
        ...

    def actor_value(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(mean Q(s, pi(s)), 0-d; its gradient with respect to `values` [C, N, K]), which the actor climbs."""
        ...

    def reconfigure(self, config: ConfigT_contra) -> None:
        """Use new settings from the next update on."""
        ...
