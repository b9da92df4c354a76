"""Networks like those that users write, as values for settings that accept classes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gymnasium.spaces import Space
from gymnasium.spaces.utils import flatdim
from torch import Tensor, nn

from rlsdk.interfaces import Distribution
from rlsdk.networks import build_action_head
from rlsdk.spaces import Space as RlsdkSpace


class OwnNetwork(nn.Module):
    """A network from preprocessed observations, a tensor [N, ..], to outputs [N, output_dim]."""

    def __init__(self, observation_space: object, output_dim: int, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.Softplus(), nn.Linear(width, output_dim))

    def forward(self, observations: Tensor) -> Tensor:
        """Return the outputs, float [N, output_dim]."""
        found: Tensor = self.layers(observations)
        return found


class OwnCritic(nn.Module):
    """A network from preprocessed observations [N, ..] and actions [N, A] to values [N, output_dim]."""

    def __init__(self, observation_space: object, action_dim: int, output_dim: int, width: int = 4) -> None:
        super().__init__()
        self.network = OwnNetwork(observation_space, output_dim, width)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the values, float [N, output_dim]."""
        found: Tensor = self.network(torch.cat([observations.flatten(1), actions], 1))
        return found


class OwnExtractor(nn.Module):
    """A network from preprocessed observations, a tensor [N, ..], to features [N, features_dim]."""

    def __init__(self, observation_space: Space[object], features_dim: int = 4) -> None:
        super().__init__()
        self.features_dim = features_dim
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(flatdim(observation_space), features_dim), nn.Softplus())

    def forward(self, observations: Tensor) -> Tensor:
        """Return the features, float [N, features_dim]."""
        found: Tensor = self.layers(observations)
        return found


class OwnHead(nn.Module):
    """An action head: that of the SDK for the space, on smaller features."""

    def __init__(self, space: RlsdkSpace, latent: int) -> None:
        super().__init__()
        self.head = build_action_head(space, latent)

    def forward(self, latent: Tensor, mask: Tensor | None) -> Distribution:
        """Return the distribution of actions for latent features [N, F] and allowed choices [N, M]."""
        found: Distribution = self.head(0.5 * latent, mask)
        return found

    def to_environment(self, action: object) -> object:
        """Convert actions [N, ..] to environment units."""
        return self._by_the_sdk("to_environment", action)

    def from_environment(self, action: object) -> object:
        """Convert environment units [N, ..] to actions."""
        return self._by_the_sdk("from_environment", action)

    def _by_the_sdk(self, method: str, action: object) -> object:
        found: object = getattr(self.head, method)(action)
        return found


OF_THE_SDK: Mapping[str, tuple[object, ...]] = {
    "actor_class": (OwnNetwork,),
    "actor_kwargs": ({"width": 3},),
    "critic_class": (OwnNetwork, OwnCritic),
    "critic_kwargs": ({"width": 3},),
    "action_distribution": (OwnHead,),
    "network_class": (OwnNetwork,),
    "network_kwargs": ({"width": 3},),
    "features_extractor_class": (OwnExtractor, "FlattenExtractor", "NatureCNN"),
    "features_extractor_kwargs": ({"features_dim": 3},),
}
"""Setting of `rlsdk.settings` that accepts classes -> values to try; a plugin must accept at least one of them."""
