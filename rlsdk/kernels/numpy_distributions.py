"""The commonest two distributions in numpy, for acting in few environments and learning from few rows, where calls of torch
would take longer than the network. All equals `rlsdk.distributions` (tests compare them).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rlsdk.kernels.protocol import GumbelNoise, NormalNoise

Floats = NDArray[np.float32]
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class NormalSampler:
    """Actions float [B, A]: mean + std * noise."""

    def __init__(self, noise: NormalNoise) -> None:
        self.log_std = noise.log_std
        self._known: tuple[int, Floats] = 0, np.zeros(0, np.float32)

    def __call__(self, mean: Floats, mask: Tensor | None, generator: Generator) -> Floats:
        """Actions [B, A] for means [B, A]; there are no masks."""
        noise: Floats = torch.randn(mean.shape, generator=generator).numpy()
        place, (before, log_std) = self.log_std.data_ptr(), self._known
        if place != before:  # the parameter was given other memory
            log_std = self.log_std.detach().numpy()[None]  # as the noise of one row: no broadcasting
            self._known = place, log_std  # at once: agents predict from several threads
        noise *= np.exp(log_std)
        noise += mean
        return noise

    def __getstate__(self) -> dict[str, object]:
        """Views of memory are not copied and not sent."""
        return {"log_std": self.log_std, "_known": (0, np.zeros(0, np.float32))}


class GumbelSampler:
    """Actions int64 [B]: the largest of logits and Gumbel noise."""

    def __init__(self, noise: GumbelNoise) -> None:
        self.forbidden, self.smallest = np.float32(noise.forbidden), np.float32(noise.smallest)

    def __call__(self, logits: Floats, mask: Tensor | None, generator: Generator) -> NDArray[np.int64]:
        """Actions [B] for logits [B, n], and bool [B, n] or None."""
        if mask is not None:
            logits = np.where(mask.numpy(), logits, self.forbidden)
        noise = torch.empty(logits.shape).exponential_(generator=generator).numpy()
        found: NDArray[np.int64] = (logits - np.log(np.maximum(noise, self.smallest))).argmax(-1)
        return found


Sampler = NormalSampler | GumbelSampler
"""Internal actions [B, ..], given what the head's linear layer gave [B, ..], and the mask [B, ..]."""


def sampler_of(noise: NormalNoise | GumbelNoise | None) -> Sampler | None:
    """The sampler for this noise; None: the distribution samples."""
    if noise is None:
        return None
    return NormalSampler(noise) if isinstance(noise, NormalNoise) else GumbelSampler(noise)


class TakenChoices:
    """One choice out of O: `log_prob` and `entropy` [N]; `vjp` gives gradients with respect to what the head's linear layer
    gave [N, O], and to the head's own parameters [A].

    Inside all is [O, N]: numpy reduces the first axis row by row, three times as fast as short last ones.
    """

    def __init__(self, logits: Floats, action: Tensor, mask: Tensor | None, noise: GumbelNoise) -> None:
        """`action`: int64 [N] from 0; `mask`: bool [N, O] or None."""
        if mask is not None:
            logits = np.where(mask.numpy(), logits, np.float32(noise.forbidden))
        self._chosen = action.numpy(), np.arange(len(logits))
        self._log_probs = np.array(logits.T, order="C")
        self._log_probs -= np.maximum.reduce(self._log_probs)
        self._probs = np.exp(self._log_probs)
        total = np.add.reduce(self._probs)
        self._probs /= total
        self._log_probs -= np.log(total)
        self.log_prob: Floats = self._log_probs[self._chosen]
        self.entropy: Floats = -np.add.reduce(self._probs * self._log_probs)

    def vjp(self, grad_log_prob: Floats, grad_entropy: Floats | None) -> tuple[Floats]:
        """onehot(a) - p, and -p (log p + H)."""
        per_row = -grad_log_prob
        if grad_entropy is not None:
            per_row = per_row - grad_entropy * (self._log_probs + self.entropy)
        grad: Floats = self._probs * per_row
        grad[self._chosen] += grad_log_prob
        return (np.ascontiguousarray(grad.T),)


class TakenVectors:
    """Gaussian vectors whose deviation does not depend on the observation; the same members."""

    def __init__(self, mean: Floats, action: Tensor, noise: NormalNoise) -> None:
        """`mean` and `action`: float [N, A]."""
        log_std = noise.log_std.detach().numpy()[None]
        self._precision = np.exp(-log_std)
        self._standardised = action.numpy() - mean
        self._standardised *= self._precision
        self._squares = self._standardised * self._standardised
        spread = np.add.reduce(log_std, None) + np.float32(HALF_LOG_TWO_PI * mean.shape[1])
        self.log_prob: Floats = np.add.reduce(self._squares, -1) * np.float32(-0.5) - spread
        self.entropy: Floats = np.full(len(mean), spread + np.float32(0.5 * mean.shape[1]))

    def vjp(self, grad_log_prob: Floats, grad_entropy: Floats | None) -> tuple[Floats, Floats]:
        """z / std and z^2 - 1, with z = (a - mean) / std; the entropy's are 0 and 1."""
        own = grad_log_prob.dot(self._squares - np.float32(1.0))
        if grad_entropy is not None:
            own += np.add.reduce(grad_entropy)
        return self._standardised * self._precision * grad_log_prob[:, None], own


Taken = TakenChoices | TakenVectors
"""Actions that were taken, under the distribution they are evaluated with."""


def taken(raw: Floats, action: Tensor, mask: Tensor | None, noise: NormalNoise | GumbelNoise) -> Taken:
    """Internal actions [N, ..], given what the head's linear layer gave [N, O]."""
    if isinstance(noise, NormalNoise):
        return TakenVectors(raw, action, noise)
    return TakenChoices(raw, action, mask, noise)
