"""The encoder of Dict and Tuple observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlsdk.errors import UnsupportedSpaceError
from rlsdk.networks.encoders import FlattenEncoder, features_dim
from rlsdk.networks.nature_encoder import NatureEncoder
from rlsdk.records import Features
from rlsdk.spaces import Box, Dict, Space, Tuple


class CombinedEncoder(nn.Module):
    """One encoder per entry of a Dict or Tuple: NatureEncoder for images, FlattenEncoder for others. Their features are
    concatenated."""

    def __init__(
        self,
        space: Space,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        *,
        normalize_images: bool = True,
    ) -> None:
        """Create one encoder per entry. With `normalized_image`, float arrays with three dimensions count as images
        too.

        Raises:
            UnsupportedSpaceError: the space is not a Dict or Tuple.
        """
        super().__init__()
        if not isinstance(space, Dict | Tuple):
            raise UnsupportedSpaceError(
                f"MultiInputPolicy needs a Dict or Tuple observation, got {type(space).__name__}"
            )
        encoders: dict[str | int, nn.Module] = {}
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
        self.encoders = nn.ModuleList(encoders.values())  # a list: module names must not contain dots, keys may
        self.features_dim = sum(features_dim(encoder) for encoder in encoders.values())

    def forward(self, features: Features) -> Tensor:
        return torch.cat(
            [encoder(features[key]) for key, encoder in zip(self.keys, self.encoders, strict=True)], dim=-1
        )
