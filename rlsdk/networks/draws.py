"""Sampling in numpy, for acting in few environments: the commonest two distributions, where a dozen torch calls would take
longer than the network. Numbers drawn and results are those of `rlsdk.distributions` (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.networks.action_heads import DiscreteHead, GaussianHead

Draw = Callable[[Any, Tensor | None, Generator], Any]
"""Internal actions given what the head's linear layer gave [B, ..], and the mask."""


def draw_gaussian(log_std: Tensor, mean: Any, mask: Tensor | None, generator: Generator) -> Any:
    """Actions float [B, A]: mean + std * noise."""
    noise = torch.randn(mean.shape, generator=generator).numpy()
    noise *= np.exp(log_std.detach().numpy())
    noise += mean
    return noise


def draw_categorical(logits: Any, mask: Tensor | None, generator: Generator) -> Any:
    """Actions int64 [B]: the largest of logits and Gumbel noise."""
    if mask is not None:
        logits = np.where(mask.numpy(), logits, np.float32(FORBIDDEN))
    noise = torch.empty(logits.shape).exponential_(generator=generator).numpy()
    return (logits - np.log(np.maximum(noise, np.float32(SMALLEST)))).argmax(-1)


DRAWS: dict[type[nn.Module], Callable[[Any], Draw]] = {
    GaussianHead: lambda head: partial(draw_gaussian, head.log_std),
    DiscreteHead: lambda _: draw_categorical,
}
"""For a head, what draws for it."""
