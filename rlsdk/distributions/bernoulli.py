"""The distribution of independent bits, for MultiBinary actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from rlsdk.distributions.documented_members import explains_documented_members
from rlsdk.kernels.reference import require_choice

CERTAIN = 1e8
"""The absolute value of the logit of a bit of which one value is forbidden."""


@explains_documented_members
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
        limited = torch.where(one, logits, -CERTAIN)
        return Bernoulli(torch.where(zero, limited, CERTAIN))

    def sample(self, generator: Generator) -> Tensor:
        """Return bits [B, A]. Raises DivergenceError if logits are NaN, as `mode` does; not on accelerators."""
        probability = self.logits.sigmoid()
        require_choice(probability)
        uniform = torch.rand(self.logits.shape, generator=generator, device=self.logits.device)
        return (uniform < probability).to(torch.int8)

    def mode(self) -> Tensor:
        require_choice(self.logits.sigmoid())  # finite also for infinite logits
        return (self.logits > 0.0).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        """The log-probability [N] of actions [N, A]: the sum over bits of log sigmoid(l) for 1 and log sigmoid(-l) for 0."""
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
