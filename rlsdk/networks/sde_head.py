"""The action head for state-dependent exploration (gSDE)."""

from __future__ import annotations

from torch import Tensor, nn

from rlsdk.distributions import Gaussian, SquashedGaussian
from rlsdk.networks.action_heads import GaussianHead
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.state_dependent_noise import StateDependentNoise


class SdeHead(nn.Module):
    """A Gaussian mean with state-dependent noise. With `scale`, actions are squashed by tanh into a bounded Box."""

    def __init__(self, head: GaussianHead, noise: StateDependentNoise, scale: ActionScale | None) -> None:
        super().__init__()
        self.head, self.noise, self.scale = head, noise, scale

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian | SquashedGaussian:
        mean = self.head.linear(latent)
        kind = Gaussian if self.scale is None else SquashedGaussian
        return kind(mean, self.noise.log_std_of(latent))

    def explore(self, latent: Tensor, matrices: Tensor) -> Tensor:
        """Internal actions [B, A] with the noise of these noise matrices."""
        raw: Tensor = self.head.linear(latent) + self.noise.noise(latent, matrices)
        return raw if self.scale is None else raw.tanh()

    def to_environment(self, action: Tensor) -> Tensor:
        return (self.head if self.scale is None else self.scale).to_environment(action)

    def from_environment(self, action: Tensor) -> Tensor:
        return self.head.from_environment(action) if self.scale is None else self.scale.to_unit(action)
