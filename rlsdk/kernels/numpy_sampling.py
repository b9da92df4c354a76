"""Sampling in numpy, for acting in few environments: the commonest two distributions, where a dozen torch calls would take
longer than the network. Samples and log-densities equal those of `rlsdk.distributions` (a test compares them).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rlsdk.kernels.protocol import GumbelNoise, NormalNoise

Floats = NDArray[np.float32]


class Sampler(Protocol):
    """Internal actions [B, ..], given what the head's linear layer gave [B, ..], and the mask [B, ..]."""

    def __call__(self, raw: Floats, mask: Tensor | None, generator: Generator, /) -> NDArray[np.generic]: ...


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


def sampler_of(noise: NormalNoise | GumbelNoise | None) -> Sampler | None:
    """The sampler for this noise; None: the distribution samples."""
    if noise is None:
        return None
    return NormalSampler(noise) if isinstance(noise, NormalNoise) else GumbelSampler(noise)
