"""Protocols of distributions over actions."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor


@runtime_checkable
class Distribution(Protocol):
    """An immutable distribution over actions, for N rows.

    Log-probabilities, entropies and divergences have the shape [N]: they are summed over the dimensions of an action.
    """

    def sample(self, generator: Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor:
        """The entropy, float [N], or an estimate if there is no closed form; the docstring of the implementation names
        the estimate."""
        ...

    def kl_divergence(self, other: Any) -> Tensor:
        """The divergence KL(self || other) >= 0, float [N]; 0 if both are equal."""
        ...


@runtime_checkable
class ClosedForm(Distribution, Protocol):
    """A distribution with closed-form gradients with respect to its inputs: its fields, or the logits that define the
    fields."""

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, ...]:
        """Return the gradient of a loss with respect to each input, float [N, ..].

        Args:
            action: the actions [N, ..] whose log-probability the loss uses.
            grad_log_prob: the gradient of the loss with respect to `log_prob(action)`, float [N].
            grad_entropy: the gradient with respect to `entropy()`, float [N]; None if the loss has no entropy term.
        """
        ...

    def fisher_product(self, *changes: Tensor) -> tuple[Tensor, ...]:
        """Multiply the Fisher information of each row with a change of each input, float [N, ..]."""
        ...
