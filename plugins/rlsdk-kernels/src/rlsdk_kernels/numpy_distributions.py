"""The two most common distributions in numpy, for few environments and few rows.

Calls of torch would take longer than the network. Results equal those of `rlsdk.distributions` (tests compare them).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rlsdk.kernels import GumbelNoise, NormalNoise, require_choice
from rlsdk_kernels.memory import Memory, require_memory

Floats = NDArray[np.float32]
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LOWEST = np.finfo(np.float32).min
"""The logit of forbidden values before probabilities are computed: no allowed value has a lower one."""


class NormalSampler:
    """Samples actions float [B, A] as mean + std * noise."""

    def __init__(self, noise: NormalNoise) -> None:
        self.log_std = noise.log_std
        self._known: tuple[Memory, Floats] = Memory(), np.zeros(0, np.float32)

    def __call__(self, mean: Tensor, mask: Tensor | None, generator: Generator) -> Tensor:
        """Return actions [B, A] for means [B, A]. `mask` is not used."""
        noise: Floats = torch.randn(mean.shape, generator=generator).numpy()
        given, (before, log_std) = (self.log_std,), self._known
        if not before.is_that_of(given):
            require_memory(given)
            log_std = self.log_std.detach().numpy()[None]  # [1, A], like the noise of one row: no broadcasting
            self._known = Memory(given), log_std  # one assignment, because several threads may predict
        noise *= np.exp(log_std)
        noise += mean.numpy()
        return torch.from_numpy(noise)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without views of memory, which must not be copied or pickled."""
        return {"log_std": self.log_std, "_known": (Memory(), np.zeros(0, np.float32))}


class GumbelSampler:
    """Samples actions int64 [B] as the index of the largest sum of logit and Gumbel noise."""

    def __init__(self, noise: GumbelNoise) -> None:
        self.smallest = np.float32(noise.smallest)

    def __call__(self, logits: Tensor, mask: Tensor | None, generator: Generator) -> Tensor:
        """Return actions [B] for logits [B, n] and a mask, bool [B, n] or None."""
        noise = torch.empty(logits.shape).exponential_(generator=generator).numpy()
        require_choice(logits, mask)
        allowed = logits.numpy() if mask is None else np.where(mask.numpy(), logits.numpy(), LOWEST)
        return torch.from_numpy((allowed - np.log(np.maximum(noise, self.smallest))).argmax(-1))


Sampler = Callable[[Tensor, Tensor | None, Generator], Tensor]
"""A function that returns internal actions [B, ..], given the output of the head's linear layer [B, ..] and the mask
[B, ..]."""


def sampler_of(noise: NormalNoise | GumbelNoise | None) -> Sampler | None:
    """Return the sampler for this noise; None: the distribution samples."""
    if noise is None:
        return None
    if isinstance(noise, NormalNoise):
        return NormalSampler(noise)
    return GumbelSampler(noise)


class TakenChoices:
    """The actions taken under a categorical distribution of O values, with `log_prob` and `entropy` [N].

    `vjp` returns the gradients with respect to the output of the head's linear layer [N, O] and to the head's own
    parameters. Arrays inside are [O, N]: numpy reduces the first axis three times as fast as a short last one.
    """

    def __init__(self, logits: Floats, action: Tensor, mask: Tensor | None, noise: GumbelNoise) -> None:
        """`action` is int64 [N], counted from 0; `mask` is bool [N, O] or None."""
        if mask is not None:
            logits = np.where(mask.numpy(), logits, LOWEST)
        self._chosen = action.numpy(), np.arange(len(logits))
        self._log_probs = np.array(logits.T, order="C")
        self._log_probs -= np.maximum.reduce(self._log_probs)
        self._probs = np.exp(self._log_probs)
        total = np.add.reduce(self._probs)
        self._probs /= total
        self._log_probs -= np.log(total)
        if mask is not None:
            np.maximum(self._log_probs, np.float32(noise.forbidden), out=self._log_probs)
        self.log_prob: Floats = self._log_probs[self._chosen]
        self.entropy: Floats = -np.add.reduce(self._probs * self._log_probs)

    def vjp(self, grad_log_prob: Floats, grad_entropy: Floats | None) -> tuple[Floats]:
        """The gradient of the log-probability is onehot(a) - p, that of the entropy -p (log p + H)."""
        per_row = -grad_log_prob
        if grad_entropy is not None:
            per_row = per_row - grad_entropy * (self._log_probs + self.entropy)
        grad: Floats = self._probs * per_row
        grad[self._chosen] += grad_log_prob
        return (np.ascontiguousarray(grad.T),)


class TakenVectors:
    """The actions taken under a Gaussian whose deviation does not depend on the observation, with the members of
    `TakenChoices`."""

    def __init__(self, mean: Floats, action: Tensor, noise: NormalNoise) -> None:
        """`mean` and `action` are float [N, A]."""
        log_std = noise.log_std.detach().numpy()[None]
        self._precision = np.exp(-log_std)
        self._standardized = action.numpy() - mean
        self._standardized *= self._precision
        self._squares = self._standardized * self._standardized
        spread = np.add.reduce(log_std, None) + np.float32(HALF_LOG_TWO_PI * mean.shape[1])
        self.log_prob: Floats = np.add.reduce(self._squares, -1) * np.float32(-0.5) - spread
        self.entropy: Floats = np.full(len(mean), spread + np.float32(0.5 * mean.shape[1]))

    def vjp(self, grad_log_prob: Floats, grad_entropy: Floats | None) -> tuple[Floats, Floats]:
        """With z = (a - mean) / std, the gradients of the log-probability are z / std and z^2 - 1, those of the entropy
        0 and 1."""
        own = grad_log_prob.dot(self._squares - np.float32(1.0))
        if grad_entropy is not None:
            own += np.add.reduce(grad_entropy)
        return self._standardized * self._precision * grad_log_prob[:, None], own


Taken = TakenChoices | TakenVectors
"""The actions taken, under the distribution that is evaluated."""


def taken(raw: Floats, action: Tensor, mask: Tensor | None, noise: NormalNoise | GumbelNoise) -> Taken:
    """Return the internal actions [N, ..] under the distribution with the head's output `raw` [N, O]."""
    if isinstance(noise, NormalNoise):
        return TakenVectors(raw, action, noise)
    return TakenChoices(raw, action, mask, noise)
