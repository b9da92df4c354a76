"""The features extractors of stable-baselines3: they take a gymnasium space, and are called with preprocessed observations.

Preprocessed means: images are float32 with channels first, divided by 255 unless `normalize_images` is off; Discrete and
MultiDiscrete values are one-hot; other numbers are float32. Dict spaces give a dict of these.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.networks import nature_layers


class BaseFeaturesExtractor(nn.Module):
    """The base class of users' features extractors: `forward(observations)` returns float32 [N, features_dim].

    If the width depends on the layers that the constructor builds, the constructor sets `self._features_dim` at its
    end.
    """

    def __init__(self, observation_space: object, features_dim: int = 0) -> None:
        """Raises SettingsError if `features_dim` is not positive."""
        super().__init__()
        if not isinstance(features_dim, int | np.integer) or features_dim < 1:
            raise SettingsError(f"features_dim = {features_dim!r} must be a positive whole number")
        self._observation_space, self._features_dim = observation_space, int(features_dim)

    @property
    def features_dim(self) -> int:
        """The number of features."""
        return self._features_dim


class FlattenExtractor(BaseFeaturesExtractor):
    """Concatenates an observation into one vector."""

    def __init__(self, observation_space: object) -> None:
        """Raises UnsupportedSpaceError if the space is nested."""
        super().__init__(observation_space, flattened_dim(observation_space))
        self.flatten = nn.Flatten()

    def forward(self, observations: Tensor) -> Tensor:
        """float32 [N, ...] -> [N, features_dim]."""
        return self.flatten(observations)  # type: ignore[no-any-return]


class NatureCNN(BaseFeaturesExtractor):
    """Three convolutions and a linear layer. Source: Mnih et al. 2015, doi:10.1038/nature14236, extended data table 1."""

    is_nature_cnn = True
    """Policies have no hidden layers after it by default."""

    def __init__(self, observation_space: Any, features_dim: int = 512, normalized_image: bool = False) -> None:
        """Create the layers. With `normalized_image`, any array with three dimensions is accepted as an image.

        Raises:
            UnsupportedSpaceError: the observations are not images.
        """
        super().__init__(observation_space, features_dim)
        if not is_image_space(observation_space, normalized_image):
            raise UnsupportedSpaceError(
                f"NatureCNN needs uint8 images with channels first and values 0 ... 255, got {observation_space};"
                " pass normalized_image=True for images that are scaled already"
            )
        if min(observation_space.shape[1:]) < 36:
            raise UnsupportedSpaceError(
                f"NatureCNN needs images of at least 36 x 36 pixels, got {observation_space.shape}"
            )
        channels, *size = observation_space.shape
        self.cnn, self.linear = nature_layers(channels, size, features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        """float32 [N, C, H, W] -> [N, features_dim]."""
        return self.linear(self.cnn(observations))  # type: ignore[no-any-return]


class CombinedExtractor(BaseFeaturesExtractor):
    """One extractor per entry of a Dict: NatureCNN for images, `nn.Flatten` for others. Their features are concatenated."""

    def __init__(self, observation_space: Any, cnn_output_dim: int = 256, normalized_image: bool = False) -> None:
        """Raises UnsupportedSpaceError if the space is not a Dict."""
        if type(observation_space).__name__ != "Dict":
            raise UnsupportedSpaceError(f"CombinedExtractor needs a Dict observation, got {observation_space}")
        super().__init__(observation_space, features_dim=1)
        extractors: dict[str, nn.Module] = {}
        total = 0
        for key, space in observation_space.spaces.items():
            is_image = is_image_space(space, normalized_image)
            extractors[key] = NatureCNN(space, cnn_output_dim, normalized_image) if is_image else nn.Flatten()
            total += cnn_output_dim if is_image else flattened_dim(space)
        self.extractors, self._features_dim = nn.ModuleDict(extractors), total

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """A dict of float32 tensors [N, ...] -> [N, features_dim]."""
        return torch.cat([extractor(observations[key]) for key, extractor in self.extractors.items()], dim=1)


def flattened_dim(space: Any) -> int:
    """The number of elements of one preprocessed observation of a gymnasium space.

    Raises:
        UnsupportedSpaceError: a nested space.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete":
        return int(np.sum(space.nvec))
    if kind in ("Box", "MultiBinary"):
        return math.prod(space.shape)
    raise UnsupportedSpaceError(f"a {kind} observation has no flat form; use CombinedExtractor, or your own extractor")


def is_image_space(space: Any, normalized_image: bool = False) -> bool:
    """Whether a gymnasium space has three dimensions and, unless `normalized_image`, uint8 values 0 ... 255."""
    if type(space).__name__ != "Box" or len(space.shape) != 3:
        return False
    return normalized_image or (space.dtype == np.uint8 and space.low.min() == 0 and space.high.max() == 255)
