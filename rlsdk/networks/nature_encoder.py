"""The encoder of images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlsdk.errors import UnsupportedSpaceError
from rlsdk.kernels import KernelSlot, factory
from rlsdk.spaces import Box, Space


class NatureEncoder(nn.Module):
    """Three convolutions and a linear layer. Source: Mnih et al. 2015, doi:10.1038/nature14236, extended data table 1."""

    def __init__(
        self, space: Space, features_dim: int = 512, normalized_image: bool = False, *, normalize_images: bool = True
    ) -> None:
        """Create the layers. With `normalized_image`, images may be floats that are already scaled.

        Raises:
            UnsupportedSpaceError: the observations are not images.
        """
        super().__init__()
        checked = normalize_images and not normalized_image
        if not isinstance(space, Box) or len(space.shape) != 3 or (checked and not space.is_image):
            raise UnsupportedSpaceError(
                f"CnnPolicy needs uint8 images with three dimensions and values 0 ... 255, got {space}; {_way_out(space)}"
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
        self._kernel = KernelSlot(self._make_kernel, self, ("convolutions",))

    def forward(self, features: Tensor) -> Tensor:
        pixels = features.movedim(-1, -3) if self.channels_last else features
        return factory.sequential([self.linear], self._kernel()(pixels))

    def _make_kernel(self, hooked: bool) -> Callable[[Tensor], Tensor]:
        return factory.convolutions(list(self.convolutions), self.scale, hooked, self._convolved)

    def _convolved(self, pixels: Tensor) -> Tensor:
        """[N, channels, height, width] -> [N, features], computed by the modules."""
        found: Tensor = self.convolutions(pixels.float() * self.scale)
        return found


def _way_out(space: Space) -> str:
    """What makes an image of observations that are none yet, or another policy."""
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return "use MlpPolicy, or MultiInputPolicy for a Dict"
    if len(space.shape) == 3:
        return (
            "declare such bounds, or use policy_kwargs={'normalize_images': False} for images that are scaled already"
        )
    shape = f"({space.shape[0]}, {space.shape[1]}, 1)"
    return f"add an axis for the color of gray images: gymnasium.wrappers.ReshapeObservation(env, {shape})"
