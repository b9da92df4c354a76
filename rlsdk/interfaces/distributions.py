"""Distributions over actions."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor


@runtime_checkable
class Distribution(Protocol):
    """An immutable distribution over actions; the event axis is summed, results have the batch shape [N]."""

    def sample(self, generator: Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor:
        """float [N]. Where no closed form exists, an estimate; the docstring names it."""
        ...

    def kl_divergence(self, other: Any) -> Tensor:
        """KL(self || other) >= 0, float [N]; 0 for other = self."""
        ...


@runtime_checkable
class ClosedForm(Distribution, Protocol):
    """A distribution with closed-form gradients. Its inputs are its fields, or the logits that these come from."""

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, ...]:
        """The gradient of a loss with respect to each input, float [N, ..], given that with respect to `log_prob(action)` and
        `entropy()`, float [N]; None where the loss has no entropy."""
        ...

    def fisher_product(self, *changes: Tensor) -> tuple[Tensor, ...]:
        """The Fisher information of each row times a change of each input, float [N, ..]."""
        ...
