"""Epsilon-greedy actions."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.distributions.categorical import Categorical


def epsilon_greedy(
    greedy: Tensor, sizes: tuple[int, ...], epsilon: Tensor, mask: Tensor | None, generator: Generator
) -> Tensor:
    """Replace each row of `greedy` by a random action with probability `epsilon`.

    Args:
        greedy: actions int64 [B, K], K choices counted from 0.
        sizes: the number of values of each choice.
        epsilon: the probability, 0-d.
        mask: allowed values, bool [B, sum(sizes)]; None: all. Random actions are uniform over the allowed values.
        generator: samples the random numbers.
    """
    device = greedy.device
    if mask is None:
        drawn = [torch.randint(size, greedy.shape[:1], generator=generator, device=device) for size in sizes]
    else:
        even = (Categorical.of(torch.zeros(m.shape, device=device), m) for m in torch.split(mask, list(sizes), -1))
        drawn = [distribution.sample(generator) for distribution in even]
    explores = torch.rand(greedy.shape[:1], generator=generator, device=device) < epsilon
    other = drawn[0].unsqueeze(-1) if len(drawn) == 1 else torch.stack(drawn, -1)
    return torch.where(explores.unsqueeze(-1), other, greedy)
