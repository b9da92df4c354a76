"""Distributions of discrete actions: categorical, Bernoulli, and products of several choices. Masks set the probability of
forbidden values to 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from rlsdk.interfaces import Distribution, explain_names
from rlsdk.kernels.reference import require_choice

PartT = TypeVar("PartT")


FORBIDDEN = -1e8
"""The log-probability of a value that the mask forbids, and the smallest one under a mask. Its probability is exactly 0 in
float32, and its product with 0 is finite."""
SMALLEST = 1e-30


def gumbel(like: Tensor, generator: Generator) -> Tensor:
    """Standard Gumbel noise with the shape [..] of `like`. The argmax of logits + noise is a sample of the distribution."""
    exponential = torch.empty_like(like).exponential_(generator=generator)
    # an exponential number may be exactly 0, whose logarithm is infinite
    return -exponential.clamp(min=SMALLEST).log()


def _log_probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The log-probabilities [.., n] of one choice, `FORBIDDEN` where `mask` bool [.., n] is False. No gradient flows through
    these entries."""
    if mask is None:
        return logits.log_softmax(-1)
    # no allowed logit is below the lowest number, however small all of them are
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).log_softmax(-1).clamp(min=FORBIDDEN)


@explain_names
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
        # the Gumbel trick: an argmax needs no cumulative sums of probabilities
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
            # in closed form, because kernels call this instead of autograd
            entropy = -(probs * self.log_probs).sum(-1, keepdim=True)
            per_row = per_row + grad_entropy.unsqueeze(-1) * (self.log_probs + entropy)
        result = probs.mul_(per_row).neg_()
        return (result.scatter_add_(-1, action.long().unsqueeze(-1), grad_log_prob.unsqueeze(-1)),)

    def fisher_product(self, logits: Tensor) -> tuple[Tensor]:
        """The Fisher information times a change v of the logits, [N, n]: p (v - p.v)."""
        probs = self.probs
        return (probs * (logits - (probs * logits).sum(-1, keepdim=True)),)


@explain_names
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


CERTAIN = 1e8
"""The absolute value of the logit of a bit of which one value is forbidden."""


@explain_names
@dataclass(frozen=True, slots=True, eq=False)
class Bernoulli:
    """Independent bits: bit a is 1 with probability sigmoid(`logits`[a]). `logits` are float [N, A], actions 0 or 1 [N, A]."""

    logits: Tensor

    @staticmethod
    def of(logits: Tensor, mask: Tensor | None = None) -> Bernoulli:
        """The distribution with logits [N, A]. `mask` bool [N, 2 A] has two entries per bit: may it be 0, may it be 1."""
        if mask is None:
            return Bernoulli(logits)
        zero, one = mask.view(*mask.shape[:-1], -1, 2).unbind(-1)
        # finite, because infinite logits give NaN in the entropy; sigmoid of it is exactly 0
        limited = torch.where(one, logits, -CERTAIN)
        return Bernoulli(torch.where(zero, limited, CERTAIN))

    def sample(self, generator: Generator) -> Tensor:
        """Return bits [B, A]. Raises DivergenceError if logits are NaN, as `mode` does; not on accelerators."""
        probability = self.logits.sigmoid()
        require_choice(probability)
        # uniform < p and not <=: a probability of 0 then never gives 1
        uniform = torch.rand(self.logits.shape, generator=generator, device=self.logits.device)
        return (uniform < probability).to(torch.int8)

    def mode(self) -> Tensor:
        require_choice(self.logits.sigmoid())  # finite also for infinite logits
        return (self.logits > 0.0).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-probability [N] of actions [N, A]: the sum over bits of log sigmoid(l) for 1 and log sigmoid(-l) for 0."""
        # log sigmoid by softplus: log of a probability that rounds to 0 is infinite
        sign = 2.0 * action.to(self.logits.dtype) - 1.0
        return -softplus(-sign * self.logits).sum(-1)

    def entropy(self) -> Tensor:
        return (softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)

    def kl_divergence(self, other: Bernoulli) -> Tensor:
        """KL(self || other), [N]: p (log p - log q) + (1 - p) (log (1 - p) - log (1 - q)), summed over bits."""
        probability = self.logits.sigmoid()
        ones = softplus(-other.logits) - softplus(-self.logits)
        zeros = softplus(other.logits) - softplus(self.logits)
        return (probability * ones + (1.0 - probability) * zeros).sum(-1)

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor]:
        """The gradient [N, A] of a loss with respect to the logits l, see `ClosedForm.vjp`.

        The log-probability has the derivative a - sigmoid(l), the entropy -l sigmoid'(l).
        """
        probability = self.logits.sigmoid()
        result = (action - probability) * grad_log_prob.unsqueeze(-1)
        if grad_entropy is not None:
            result -= self.logits * probability * (1.0 - probability) * grad_entropy.unsqueeze(-1)
        return (result,)

    def fisher_product(self, logits: Tensor) -> tuple[Tensor]:
        """The Fisher information times a change v of the logits l, [N, A]: sigmoid'(l) v."""
        probability = self.logits.sigmoid()
        return (probability * (1.0 - probability) * logits,)


@explain_names
@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """The joint distribution of independent parts. Actions are a mapping or a tuple, as `parts` is."""

    parts: Mapping[str, Distribution] | tuple[Distribution, ...]

    def _pairs(self, other: Mapping[str, PartT] | Sequence[PartT]) -> list[tuple[Distribution, PartT]]:
        """(part, entry) pairs: each part with the entry of `other` (actions, or parts) that has the same key or position."""
        if isinstance(self.parts, Mapping) and isinstance(other, Mapping):
            return [(part, other[key]) for key, part in self.parts.items()]
        assert not isinstance(other, Mapping)
        return list(zip(self._each(), other, strict=True))

    def _nested(self, values: list[PartT]) -> Mapping[str, PartT] | tuple[PartT, ...]:
        return tuple(values) if isinstance(self.parts, tuple) else dict(zip(self.parts, values, strict=True))

    def _each(self) -> list[Distribution]:
        return list(self.parts if isinstance(self.parts, tuple) else self.parts.values())

    def sample(self, generator: Generator) -> Any:
        return self._nested([part.sample(generator) for part in self._each()])

    def mode(self) -> Any:
        return self._nested([part.mode() for part in self._each()])

    def log_prob(self, action: Any) -> Tensor:
        return _total([part.log_prob(own) for part, own in self._pairs(action)])

    def entropy(self) -> Tensor:
        return _total([part.entropy() for part in self._each()])

    def kl_divergence(self, other: Product) -> Tensor:
        """KL(self || other), [N]: the sum over the parts, which are independent."""
        return _total([part.kl_divergence(own) for part, own in self._pairs(other.parts)])


def _total(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0])
