"""Uniformly sampled actions of a space, and their probabilities."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.distributions.categorical import Categorical, MultiCategorical
from rlsdk.records import Features
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, choices_of, map_leaves


def uniform_actions(space: Space, batch: int, generator: Generator) -> Tensor:
    """`batch` actions sampled uniformly from a space, in environment units: [B] for Discrete, [B, *shape] otherwise.

    Raises:
        TypeError: the space is nested, or a Box without bounds.
    """
    device = generator.device
    if isinstance(space, Discrete):
        return torch.randint(space.n, (batch,), generator=generator, device=device) + space.start
    if isinstance(space, MultiDiscrete):
        share = torch.rand(batch, len(space.nvec), generator=generator, device=device)
        sizes = torch.tensor(space.nvec, device=device)
        drawn = (share * sizes).long().minimum(sizes - 1)
        return drawn + torch.tensor(space.start, device=device)
    if isinstance(space, MultiBinary):
        return torch.randint(2, (batch, *space.shape), generator=generator, device=device).to(torch.int8)
    if isinstance(space, Box) and space.is_bounded:
        low = torch.tensor(np.asarray(space.low, dtype=np.float32), device=device)
        high = torch.tensor(np.asarray(space.high, dtype=np.float32), device=device)
        share = torch.rand((batch, *space.shape), generator=generator, device=device)
        return torch.lerp(low, high, share).clamp(low, high)
    raise TypeError(f"no uniform distribution over {space}")


def allowed_actions(space: Space, mask: Tensor, generator: Generator) -> Tensor | None:
    """Actions sampled uniformly from those that `mask` bool [B, A] allows; None for a Box or a nested space."""
    if isinstance(space, Discrete):
        return Categorical.of(torch.zeros(mask.shape, device=mask.device), mask).sample(generator) + space.start
    if isinstance(space, MultiDiscrete):
        flat = MultiCategorical.of(torch.zeros(mask.shape, device=mask.device), space.nvec, mask)
        return flat.sample(generator) + torch.tensor(space.start, device=mask.device)
    if isinstance(space, MultiBinary):
        flat = MultiCategorical.of(torch.zeros(mask.shape, device=mask.device), choices_of(space), mask)
        return flat.sample(generator).reshape(-1, *space.shape).to(torch.int8)
    return None


def random_actions(space: Space, batch: int, mask: Tensor | None, generator: Generator) -> Features:
    """`batch` actions [B, ..], nested as the space, sampled uniformly from those that `mask` bool [B, A] allows; None = all.

    A Box without finite bounds has no uniform distribution. Its actions are standard normal, clipped to the bounds it has.
    """
    rest = mask

    def sampled(_: str, leaf: Space) -> Tensor:
        """The actions of one leaf, [B, *shape]. A mask has the entries of the leaves one after the other."""
        nonlocal rest
        if isinstance(leaf, Box) and not leaf.is_bounded:
            low, high = (torch.tensor(np.asarray(bound, np.float32)) for bound in (leaf.low, leaf.high))
            return torch.randn((batch, *leaf.shape), generator=generator).clamp(low, high)
        width = sum(choices_of(leaf))
        if rest is None or not width:
            return uniform_actions(leaf, batch, generator)
        part, rest = rest[:, :width], rest[:, width:]
        allowed = allowed_actions(leaf, part, generator)
        assert allowed is not None  # a leaf with choices has masks
        return allowed

    return map_leaves(space, sampled, path="action")


def uniform_log_prob(space: Space, mask: Tensor | None, actions: Tensor) -> Tensor:
    """The log-probability float32 [B] of `actions` [B, ..] that were sampled uniformly.

    They were sampled from the actions that `mask` bool [B, A] allows; None = all. For a Box it is a log-density in the units of
    the space.
    """
    batch, device = len(actions), actions.device
    if mask is not None and isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        counts = torch.stack([part.sum(-1) for part in torch.split(mask, list(choices_of(space)), -1)], -1)
        return -counts.float().log().sum(-1)
    if isinstance(space, Box):
        width = np.asarray(space.high, np.float64) - np.asarray(space.low, np.float64)
        with np.errstate(divide="ignore"):
            total = float(np.log(width[width > 0.0]).sum())
    else:
        total = float(np.log(np.asarray(choices_of(space), np.float64)).sum())
    return torch.full((batch,), -total, device=device)
