"""Uniformly random actions, and a warm-up that plays them before the policy takes over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.distributions.categorical import Categorical, MultiCategorical
from rlsdk.interfaces import Policy
from rlsdk.records import Act, Observation
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space


def uniform_actions(space: Space, batch: int, generator: Generator) -> Tensor:
    """`batch` actions drawn evenly from a bounded space, in its units: [B] for Discrete, [B, *shape] otherwise.

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
    """Actions drawn evenly from those that `mask` bool [B, A] allows; None for spaces where masks are not used so."""
    if isinstance(space, Discrete):
        return Categorical.of(torch.zeros(mask.shape, device=mask.device), mask).sample(generator) + space.start
    if isinstance(space, MultiDiscrete):
        flat = MultiCategorical.of(torch.zeros(mask.shape, device=mask.device), space.nvec, mask)
        return flat.sample(generator) + torch.tensor(space.start, device=mask.device)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class WarmUpCarry:
    """Actions taken so far over all environments (int64, 0-d, on the CPU), and the inner policy's carry."""

    taken: Tensor
    inner: Any


class UniformWarmUp:
    """Plays `steps` uniformly random actions, counted over all environments, then hands over to `inner`."""

    def __init__(self, inner: Policy[Any, Any], space: Space, steps: int) -> None:
        self.inner, self.space, self.steps = inner, space, steps

    def initial_carry(self, batch: int) -> WarmUpCarry:
        return WarmUpCarry(torch.zeros((), dtype=torch.int64), self.inner.initial_carry(batch))

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: WarmUpCarry, *, deterministic: bool, generator: Generator
    ) -> Act[WarmUpCarry, Any]:
        act = self.inner.act(observation, carry.inner, deterministic=deterministic, generator=generator)
        if deterministic or int(carry.taken) >= self.steps:
            return Act(act.action, WarmUpCarry(carry.taken, act.carry), act.extras)
        batch, mask = observation.is_first.shape[0], observation.action_mask
        random = allowed_actions(self.space, mask, generator) if mask is not None else None
        if random is None:
            random = uniform_actions(self.space, batch, generator)
        return Act(random, WarmUpCarry(carry.taken + batch, act.carry), act.extras)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)
