"""One choice out of n, or several choices side by side; masks are part of the distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

FORBIDDEN = -1e8
"""Logit of a value the mask forbids: its probability is exactly 0 in float32, its products with 0 stay finite."""
SMALLEST = 1e-30


def gumbel(like: Tensor, generator: Generator) -> Tensor:
    """Standard Gumbel noise: the largest of logits + noise is a sample of the distribution (no probabilities needed)."""
    exponential = torch.empty_like(like).exponential_(generator=generator)
    return -exponential.clamp(min=SMALLEST).log()


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """`logits` with forbidden values out of reach; no gradient flows into them."""
    return logits if mask is None else torch.where(mask, logits, FORBIDDEN)


@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """Probabilities exp(`log_probs`), float [N, n], normalised; actions are int64 [N] from 0."""

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, mask: Tensor | None = None) -> Categorical:
        """From any logits [N, n], and bool [N, n] that is False where a value is forbidden."""
        return Categorical(masked(logits, mask).log_softmax(-1))

    def sample(self, generator: Generator) -> Tensor:
        return (self.log_probs + gumbel(self.log_probs, generator)).argmax(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl_divergence(self, other: Categorical) -> Tensor:
        """sum_i p_i (log p_i - log q_i)."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)


@dataclass(frozen=True, slots=True, eq=False)
class MultiCategorical:
    """K independent choices with `sizes` values each; `log_probs` float [N, sum(sizes)], actions int64 [N, K] from 0."""

    log_probs: Tensor
    sizes: tuple[int, ...]

    @staticmethod
    def of(logits: Tensor, sizes: tuple[int, ...], mask: Tensor | None = None) -> MultiCategorical:
        """From any logits [N, sum(sizes)], the choices one after the other, and a mask of that shape."""
        parts = torch.split(masked(logits, mask), list(sizes), -1)
        return MultiCategorical(torch.cat([part.log_softmax(-1) for part in parts], -1), sizes)

    def sample(self, generator: Generator) -> Tensor:
        return self._largest(self.log_probs + gumbel(self.log_probs, generator))

    def mode(self) -> Tensor:
        return self._largest(self.log_probs)

    def _largest(self, values: Tensor) -> Tensor:
        return torch.stack([part.argmax(-1) for part in torch.split(values, list(self.sizes), -1)], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        starts = [sum(self.sizes[:k]) for k in range(len(self.sizes))]
        columns = action.long() + action.new_tensor(starts, dtype=torch.int64)
        return self.log_probs.gather(-1, columns).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl_divergence(self, other: MultiCategorical) -> Tensor:
        """The sum over the choices."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)
