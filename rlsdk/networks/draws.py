"""Sampling in numpy, for acting in few environments: the commonest two distributions, where a dozen torch calls would take
longer than the network. Numbers drawn and results are those of `rlsdk.distributions` (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.networks.action_heads import DiscreteHead, GaussianHead

Draw = Callable[[Any, Tensor | None, Generator], Any]
"""Internal actions given what the head's linear layer gave [B, ..], and the mask."""


class GaussianDraw:
    """Actions float [B, A]: mean + std * noise."""

    def __init__(self, log_std: Tensor) -> None:
        self.log_std = log_std
        self._known: tuple[int, Any] = 0, None

    def __call__(self, mean: Any, mask: Tensor | None, generator: Generator) -> Any:
        noise = torch.randn(mean.shape, generator=generator).numpy()
        place, (before, log_std) = self.log_std.data_ptr(), self._known
        if place != before:  # the parameter was given other memory
            log_std = self.log_std.detach().numpy()[None]  # as the noise of one row: no broadcasting
            self._known = place, log_std  # at once: agents predict from several threads
        noise *= np.exp(log_std)
        noise += mean
        return noise

    def __getstate__(self) -> dict[str, Any]:
        """Views of memory are not copied and not sent."""
        return {"log_std": self.log_std, "_known": (0, None)}


def draw_categorical(logits: Any, mask: Tensor | None, generator: Generator) -> Any:
    """Actions int64 [B]: the largest of logits and Gumbel noise."""
    if mask is not None:
        logits = np.where(mask.numpy(), logits, np.float32(FORBIDDEN))
    noise = torch.empty(logits.shape).exponential_(generator=generator).numpy()
    return (logits - np.log(np.maximum(noise, np.float32(SMALLEST)))).argmax(-1)


DRAWS: dict[type[nn.Module], Callable[[Any], Draw]] = {
    GaussianHead: lambda head: GaussianDraw(head.log_std),
    DiscreteHead: lambda _: draw_categorical,
}
"""For a head, what draws for it."""
