"""Encoders turn an observation of any space into a feature vector [N, features_dim]."""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, one_hot

from rlsdk.engines import Fitted, architecture, dense
from rlsdk.errors import UnsupportedSpaceError
from rlsdk.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, shape_of


class Encoder(Protocol):
    """A module with `features_dim`; `forward` maps features of a space to float32 [N, features_dim]."""

    features_dim: int

    def __call__(self, features: Any) -> Tensor: ...


def features_dim(encoder: nn.Module) -> int:
    """Width of what an encoder gives."""
    return cast("Encoder", encoder).features_dim


TABLE = 256
"""Up to so many values one-hot rows are looked up, which takes a third of the time."""


class FlattenEncoder(nn.Module):
    """Numbers as they are, discrete values one-hot, images divided by 255, all in one row. No parameters."""

    hot: Tensor | None

    def __init__(self, space: Space, normalize_images: bool = True) -> None:
        super().__init__()
        self.space = space
        self.divisor = 255.0 if normalize_images and isinstance(space, Box) and space.is_image else None
        if isinstance(space, Discrete):
            self.features_dim = space.n
            self.register_buffer("hot", torch.eye(space.n) if space.n <= TABLE else None, persistent=False)
        elif isinstance(space, MultiDiscrete):
            self.features_dim = sum(space.nvec)
        elif isinstance(space, Box | MultiBinary):
            self.features_dim = math.prod(shape_of(space))
        else:
            raise UnsupportedSpaceError(
                f"a {type(space).__name__} observation needs MultiInputPolicy, not a flat encoder"
            )

    def forward(self, features: Tensor) -> Tensor:
        if isinstance(self.space, Discrete) and self.hot is not None:
            return self.hot[features.long() - self.space.start if self.space.start else features.long()]
        if isinstance(self.space, Discrete):
            return one_hot(features.long() - self.space.start, self.space.n).float()
        if isinstance(self.space, MultiDiscrete):
            columns = (features.long() - features.new_tensor(self.space.start)).unbind(-1)
            hot = [one_hot(column, n) for column, n in zip(columns, self.space.nvec, strict=True)]
            return torch.cat(hot, dim=-1).float()
        flat = features.reshape(-1, self.features_dim).float()
        return flat if self.divisor is None else flat / self.divisor


class NatureEncoder(nn.Module):
    """Three convolutions and a linear layer. Source: Mnih et al. 2015, doi:10.1038/nature14236, extended data table 1."""

    def __init__(
        self, space: Space, features_dim: int = 512, normalized_image: bool = False, *, normalize_images: bool = True
    ) -> None:
        """`normalized_image`: images may be floats, which are scaled already. Raises UnsupportedSpaceError: no images."""
        super().__init__()
        checked = normalize_images and not normalized_image
        if not isinstance(space, Box) or len(space.shape) != 3 or (checked and not space.is_image):
            raise UnsupportedSpaceError(
                f"CnnPolicy needs uint8 images with three dimensions and values 0 ... 255, got {space};"
                " use MlpPolicy for vectors, or normalize_images=False for images that are scaled already"
            )
        self.channels_last = space.channels_last
        height, width, channels = space.shape if self.channels_last else (*space.shape[1:], space.shape[0])
        if min(height, width) < 36:
            raise UnsupportedSpaceError(f"NatureCNN needs images of at least 36 x 36 pixels, got {height} x {width}")
        self.scale = 1.0 / 255.0 if normalize_images and space.is_image else 1.0
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, channels, height, width)).shape[1]
        self.linear = nn.Sequential(nn.Linear(flat, features_dim), nn.ReLU())
        self.features_dim = features_dim
        self._made_as = architecture(self.convolutions)
        self._is_plain = Fitted(self._fit, self, ("convolutions",))

    def forward(self, features: Tensor) -> Tensor:
        pixels = features.movedim(-1, -3) if self.channels_last else features
        return dense([self.linear], self._convolved(pixels))

    def _fit(self, hooked: bool) -> bool:
        """Whether the convolutions are those made here, and no hook wants to see them called."""
        return not hooked and architecture(self.convolutions) == self._made_as

    def _convolved(self, pixels: Tensor) -> Tensor:
        """The convolutions; on a CPU with channels last in memory, which takes a quarter less time, and the first weights
        scaled instead of the pixels, of which there are many more."""
        if not pixels.is_cpu or not self._is_plain():
            found: Tensor = self.convolutions(pixels.float() * self.scale)
            return found
        values, scale = pixels.to(torch.float32, memory_format=torch.channels_last), self.scale
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                weight = (layer.weight * scale).contiguous(memory_format=torch.channels_last)
                values, scale = conv2d(values, weight, layer.bias, layer.stride).relu_(), 1.0
        return values.flatten(1)


class CombinedEncoder(nn.Module):
    """One encoder per entry of a Dict or Tuple: NatureEncoder for images, flat for the rest; their features side by side."""

    def __init__(
        self,
        space: Space,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        *,
        normalize_images: bool = True,
    ) -> None:
        """`normalized_image`: float arrays of three dimensions are images too. Raises UnsupportedSpaceError: not nested."""
        super().__init__()
        if not isinstance(space, Dict | Tuple):
            raise UnsupportedSpaceError(
                f"MultiInputPolicy needs a Dict or Tuple observation, got {type(space).__name__}"
            )
        encoders: dict[Any, nn.Module] = {}
        for key, child in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            if isinstance(child, Box) and (child.is_image or (normalized_image and len(child.shape) == 3)):
                encoders[key] = NatureEncoder(
                    child, cnn_output_dim, normalized_image, normalize_images=normalize_images
                )
            elif isinstance(child, Dict | Tuple):
                encoders[key] = CombinedEncoder(
                    child, cnn_output_dim, normalized_image, normalize_images=normalize_images
                )
            else:
                encoders[key] = FlattenEncoder(child, normalize_images)
        self.keys = tuple(encoders)
        self.encoders = nn.ModuleList(encoders.values())  # a list: keys may hold dots, which module names may not
        self.features_dim = sum(features_dim(encoder) for encoder in encoders.values())

    def forward(self, features: Any) -> Tensor:
        return torch.cat(
            [encoder(features[key]) for key, encoder in zip(self.keys, self.encoders, strict=True)], dim=-1
        )
