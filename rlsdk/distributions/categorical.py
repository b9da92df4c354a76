"""Categorical distributions of one or several independent choices. Masks set the probability of forbidden values to 0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlsdk.distributions.documented_members import explains_documented_members
from rlsdk.kernels.reference import require_choice

FORBIDDEN = -1e8
"""The log-probability of a value that the mask forbids, and the smallest one under a mask. Its probability is exactly 0 in
float32, and its product with 0 is finite."""
SMALLEST = 1e-30


def gumbel(like: Tensor, generator: Generator) -> Tensor:
    """Standard Gumbel noise with the shape [..] of `like`. The argmax of logits + noise is a sample of the distribution."""
    exponential = torch.empty_like(like).exponential_(generator=generator)
    return -exponential.clamp(min=SMALLEST).log()


def _log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The log-probabilities [.., n] of one choice, `FORBIDDEN` where `mask` bool [.., n] is False. No gradient flows through
    these entries."""
    if mask is None:
        return logits.log_softmax(-1)
    # no allowed logit is below the lowest number, however small all of them are
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).log_softmax(-1).clamp(min=FORBIDDEN)


@explains_documented_members
@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """One choice among n values, with probabilities exp(`log_probs`), float [N, n]. Actions are int64 [N], counted from 0."""

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, mask: Tensor | None = None) -> Categorical:
        """The distribution with logits [N, n]. `mask` bool [N, n] is False where a value is forbidden."""
        return Categorical(_log_probs(logits, mask))

    def sample(self, generator: Generator) -> Tensor:
        """Return choices [B]. Raises DivergenceError if log-probabilities are NaN, as `mode` does; not on accelerators."""
        require_choice(self.log_probs)
        return (self.log_probs + gumbel(self.log_probs, generator)).argmax(-1)

    def mode(self) -> Tensor:
        require_choice(self.log_probs)
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    @property
    def probs(self) -> Tensor:
        """The probabilities, [N, n]. exp(log p) would be ten times slower where values are forbidden, because it underflows."""
        return self.log_probs.softmax(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.log_probs).sum(-1)

    def kl_divergence(self, other: Categorical) -> Tensor:
        """KL(self || other) = sum_i p_i (log p_i - log q_i), [N]."""
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor]:
        """The gradient [N, n] of a loss with respect to the logits, see `ClosedForm.vjp`.

        The log-probability has the derivative onehot(a) - p, the entropy H has -p (log p + H).
        """
        probs = self.probs
        per_row = grad_log_prob.unsqueeze(-1)
        if grad_entropy is not None:
            entropy = -(probs * self.log_probs).sum(-1, keepdim=True)
            per_row = per_row + grad_entropy.unsqueeze(-1) * (self.log_probs + entropy)
        result = probs.mul_(per_row).neg_()
        return (result.scatter_add_(-1, action.long().unsqueeze(-1), grad_log_prob.unsqueeze(-1)),)

    def fisher_product(self, logits: Tensor) -> tuple[Tensor]:
        """The Fisher information times a change v of the logits, [N, n]: p (v - p.v)."""
        probs = self.probs
        return (probs * (logits - (probs * logits).sum(-1, keepdim=True)),)


@explains_documented_members
@dataclass(frozen=True, slots=True, eq=False)
class MultiCategorical:
    """K independent choices; choice k has `sizes[k]` values.

    `log_probs` are float [N, sum(sizes)], one choice after the other. Actions are int64 [N, K], counted from 0.
    """

    log_probs: Tensor
    sizes: tuple[int, ...]

    @staticmethod
    def of(logits: Tensor, sizes: tuple[int, ...], mask: Tensor | None = None) -> MultiCategorical:
        """The distribution with logits [N, sum(sizes)], one choice after the other, and a mask of the same shape."""
        parts = torch.split(logits, list(sizes), -1)
        masks = [None] * len(parts) if mask is None else torch.split(mask, list(sizes), -1)
        return MultiCategorical(torch.cat(list(map(_log_probs, parts, masks)), -1), sizes)

    def sample(self, generator: Generator) -> Tensor:
        """Return choices [B, D]. Raises DivergenceError as `Categorical.sample` does; so does `mode`."""
        return self._largest(self.log_probs + gumbel(self.log_probs, generator))

    def mode(self) -> Tensor:
        return self._largest(self.log_probs)

    def _largest(self, values: Tensor) -> Tensor:
        require_choice(self.log_probs)
        return torch.stack([part.argmax(-1) for part in torch.split(values, list(self.sizes), -1)], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        parts = zip(torch.split(self.log_probs, list(self.sizes), -1), torch.split(action.long(), 1, -1), strict=True)
        return torch.cat([own.gather(-1, chosen) for own, chosen in parts], -1).sum(-1)

    @property
    def probs(self) -> Tensor:
        """The probabilities of all choices, concatenated, [N, sum(sizes)]."""
        return torch.cat([part.softmax(-1) for part in torch.split(self.log_probs, list(self.sizes), -1)], -1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.log_probs).sum(-1)

    def kl_divergence(self, other: MultiCategorical) -> Tensor:
        """KL(self || other), summed over the choices, [N]."""
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor]:
        """The gradient of a loss with respect to the logits, [N, sum(sizes)]; see `Categorical.vjp`."""
        pairs = zip(self._choices(), action.unbind(-1), strict=True)
        return (torch.cat([one.vjp(own, grad_log_prob, grad_entropy)[0] for one, own in pairs], -1),)

    def fisher_product(self, logits: Tensor) -> tuple[Tensor]:
        """The Fisher information times a change of the logits, [N, sum(sizes)], computed for each choice and concatenated."""
        pairs = zip(self._choices(), torch.split(logits, list(self.sizes), -1), strict=True)
        return (torch.cat([one.fisher_product(own)[0] for one, own in pairs], -1),)

    def _choices(self) -> list[Categorical]:
        return [Categorical(part) for part in torch.split(self.log_probs, list(self.sizes), -1)]
