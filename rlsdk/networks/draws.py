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
from rlsdk.distributions.gaussian import HALF_LOG_TWO_PI
from rlsdk.networks.action_heads import DiscreteHead, GaussianHead

Draw = Callable[[nn.Module, Any, Tensor | None, Generator], tuple[Any, Any]]
"""(internal actions, log-probabilities [B]) given the head, what its linear layer gave [B, ..], and the mask."""


def draw_gaussian(head: Any, mean: Any, mask: Tensor | None, generator: Generator) -> tuple[Any, Any]:
    """Actions float [B, A]: mean + std * noise."""
    noise = torch.randn(mean.shape, generator=generator).numpy()
    log_std = head.log_std.detach().numpy()
    log_prob = np.add.reduce(np.square(noise) * -0.5 - (log_std + HALF_LOG_TWO_PI), axis=-1, dtype=np.float32)
    return mean + np.exp(log_std) * noise, log_prob


def draw_categorical(head: Any, logits: Any, mask: Tensor | None, generator: Generator) -> tuple[Any, Any]:
    """Actions int64 [B]: the largest of log-probabilities and Gumbel noise."""
    if mask is not None:
        logits = np.where(mask.numpy(), logits, np.float32(FORBIDDEN))
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    noise = torch.empty(logits.shape).exponential_(generator=generator).numpy()
    action = (log_probs - np.log(np.maximum(noise, np.float32(SMALLEST)))).argmax(-1)
    return action, log_probs[np.arange(len(action)), action]


DRAWS: dict[type[nn.Module], Draw] = {GaussianHead: draw_gaussian, DiscreteHead: draw_categorical}
