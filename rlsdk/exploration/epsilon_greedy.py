"""A random action now and then."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.distributions.categorical import Categorical


def epsilon_greedy(greedy: Tensor, count: int, epsilon: Tensor, mask: Tensor | None, generator: Generator) -> Tensor:
    """`greedy` actions int64 [B] from 0, each replaced with probability `epsilon` by one of the `count` (or of those the
    `mask` bool [B, count] allows), drawn evenly."""
    shape, device = greedy.shape, greedy.device
    if mask is None:
        random = torch.randint(count, shape, generator=generator, device=device)
    else:
        random = Categorical.of(torch.zeros(mask.shape, device=device), mask).sample(generator)
    explores = torch.rand(shape, generator=generator, device=device) < epsilon
    return torch.where(explores, random, greedy)
