"""Action heads that make beta and Dirichlet distributions, for the setting `action_distribution` of on-policy algorithms."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import softplus

from rlsdk.errors import UnsupportedSpaceError
from rlsdk.networks import ActionScale
from rlsdk.spaces import Box, Space
from rlsdk_networks.distributions import Beta, Dirichlet

LEAST = 1e-3
"""The least distance of parameters from 1, where the mode has no formula."""


class BetaHead(nn.Module):
    """The head of a bounded Box: one beta distribution per number, scaled to the bounds. Nothing is clipped."""

    def __init__(self, space: Space, latent: int) -> None:
        """Raises UnsupportedSpaceError if the space is not a Box with finite bounds and floats."""
        super().__init__()
        if not isinstance(space, Box):
            raise UnsupportedSpaceError(
                f"action_distribution = 'beta' is for Box actions with bounds, not for {type(space).__name__}; leave it out"
            )
        self.scale = ActionScale(space)
        self.linear = nn.Linear(latent, 2 * math.prod(space.shape))

    def forward(self, latent: Tensor, mask: Tensor | None) -> Beta:
        """Latent features [N, F] -> the distribution over (0, 1), [N, A]."""
        alpha, beta = (softplus(self.linear(latent)) + (1.0 + LEAST)).chunk(2, -1)
        return Beta(alpha, beta)

    def to_environment(self, action: Tensor) -> Tensor:
        """Numbers from 0 to 1, [N, A], to environment units [N, *shape]."""
        return self.scale.to_environment(2.0 * action - 1.0)

    def from_environment(self, action: Tensor) -> Tensor:
        """Environment units [N, *shape] to numbers from 0 to 1, [N, A]."""
        return (self.scale.to_unit(action) + 1.0) / 2.0


class DirichletHead(nn.Module):
    """The head of a simplex, a Box from 0 to 1 with one axis: actions are shares, whose sum is 1."""

    def __init__(self, space: Space, latent: int) -> None:
        """Raises UnsupportedSpaceError if the space is not such a Box."""
        super().__init__()
        fits = (
            isinstance(space, Box) and len(space.shape) == 1 and space.shape[0] > 1 and space.dtype.startswith("float")
        )
        if not isinstance(space, Box) or not fits or (space.low != 0.0).any() or (space.high != 1.0).any():
            raise UnsupportedSpaceError(
                "action_distribution = 'dirichlet' is for shares, a Box of floats from 0 to 1 with one axis and at least two"
                f" numbers, not for {space}; declare action_space = rlsdk_networks.Simplex(n), or leave it out"
            )
        self.linear = nn.Linear(latent, space.shape[0])

    def forward(self, latent: Tensor, mask: Tensor | None) -> Dirichlet:
        """Latent features [N, F] -> the distribution over shares [N, K]."""
        return Dirichlet(softplus(self.linear(latent)) + (1.0 + LEAST))

    def to_environment(self, action: Tensor) -> Tensor:
        """The shares [N, K], unchanged."""
        return action

    def from_environment(self, action: Tensor) -> Tensor:
        """The shares [N, K], unchanged."""
        return action
