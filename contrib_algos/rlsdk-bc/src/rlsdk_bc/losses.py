"""The losses of recorded actions under a distribution over actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from rlsdk.distributions import Gaussian, Product
from rlsdk.interfaces import Distribution

Pairs = list[tuple[Distribution, Any]]


def action_loss(distribution: Distribution, action: Any, *, squared: bool) -> Tensor:
    """The loss -log pi(a|s) [N] of internal actions [N, ..].

    With `squared`, each Gaussian part has the sum of the squared errors of its mean instead.
    """
    if not squared:
        return -distribution.log_prob(action)
    found = [
        (action_part - part.mean).square().sum(-1) if isinstance(part, Gaussian) else -part.log_prob(action_part)
        for part, action_part in parts_of(distribution, action)
    ]
    return torch.stack(found).sum(0)


def entropy_of(distribution: Distribution, action: object, *, squared: bool) -> Tensor:
    """The entropy [N]. With `squared` that of Gaussian parts is left out, because no other term bounds their deviation."""
    if not squared:
        return distribution.entropy()
    parts = [part for part, _ in parts_of(distribution, action) if not isinstance(part, Gaussian)]
    return sum((part.entropy() for part in parts), torch.zeros(()))


def parts_of(distribution: Distribution, action: Any) -> Pairs:
    """The parts of a product distribution, nested or not, each with its action [N, ..]."""
    if not isinstance(distribution, Product):
        return [(distribution, action)]
    parts = distribution.parts
    named: Iterable[tuple[object, Distribution]] = enumerate(parts) if isinstance(parts, tuple) else parts.items()
    return [pair for key, part in named for pair in parts_of(part, action[key])]
