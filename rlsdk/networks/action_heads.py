"""Action heads: they convert the latent features of a policy into a distribution over actions, and apply action masks."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlsdk.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical
from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.interfaces import Distribution
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete


class ActionHead(Protocol):
    """The members of every head. Distributions are over internal actions: choices counted from 0, vectors with one axis."""

    def __call__(self, latent: Tensor, mask: Tensor | None) -> Distribution: ...

    def to_environment(self, action: Any) -> Any:
        """Convert internal actions [N, ..] to environment units."""
        ...

    def from_environment(self, action: Any) -> Any:
        """Convert actions in environment units to internal actions."""
        ...


class DiscreteHead(nn.Module):
    """The head of a Discrete space: one categorical distribution."""

    def __init__(self, latent: int, space: Discrete) -> None:
        super().__init__()
        self.linear, self.start = nn.Linear(latent, space.n), space.start
        self.sampling, self.own_parameters = GumbelNoise(FORBIDDEN, SMALLEST), ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> Categorical:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> Categorical:
        return Categorical.of(raw, mask)

    def to_environment(self, action: Tensor) -> Tensor:
        return action + self.start if self.start else action

    def from_environment(self, action: Tensor) -> Tensor:
        return action - self.start if self.start else action


class MultiDiscreteHead(nn.Module):
    """The head of a MultiDiscrete space: one categorical distribution per choice."""

    start: Tensor

    def __init__(self, latent: int, space: MultiDiscrete) -> None:
        super().__init__()
        self.linear, self.sizes = nn.Linear(latent, sum(space.nvec)), space.nvec
        self.register_buffer("start", torch.tensor(space.start), persistent=False)
        self.sampling, self.own_parameters = None, ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> MultiCategorical:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> MultiCategorical:
        return MultiCategorical.of(raw, self.sizes, mask)

    def to_environment(self, action: Tensor) -> Tensor:
        return action + self.start

    def from_environment(self, action: Tensor) -> Tensor:
        return action - self.start


class MultiBinaryHead(nn.Module):
    """The head of a MultiBinary space: one Bernoulli distribution per bit."""

    def __init__(self, latent: int, space: MultiBinary) -> None:
        super().__init__()
        self.shape = space.shape
        self.linear = nn.Linear(latent, math.prod(space.shape))
        self.sampling, self.own_parameters = None, ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> Bernoulli:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> Bernoulli:
        return Bernoulli.of(raw, mask)

    def to_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, *self.shape)

    def from_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, math.prod(self.shape))


class GaussianHead(nn.Module):
    """The head of a Box space: a Gaussian whose standard deviations do not depend on the observation.

    Actions are not squashed; the environment adapter clips them.
    """

    def __init__(self, latent: int, space: Box, log_std_init: float) -> None:
        super().__init__()
        self.shape, size = space.shape, math.prod(space.shape)
        self.linear = nn.Linear(latent, size)
        self.log_std = nn.Parameter(torch.full((size,), float(log_std_init)))

    @property
    def own_parameters(self) -> tuple[nn.Parameter]:
        """See `rlsdk.kernels.protocol.PlainHead`."""
        return (self.log_std,)

    @property
    def sampling(self) -> NormalNoise:
        """See `rlsdk.kernels.protocol.PlainHead`."""
        return NormalNoise(self.log_std)

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> Gaussian:
        return Gaussian(raw, self.log_std.expand_as(raw))

    def to_environment(self, action: Tensor) -> Tensor:
        return action if len(self.shape) == 1 else action.reshape(-1, *self.shape)

    def from_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, math.prod(self.shape))


PLAIN = (DiscreteHead, MultiDiscreteHead, MultiBinaryHead, GaussianHead)
"""Heads with a single linear layer. `of(output of this layer, mask)` returns the distribution."""
