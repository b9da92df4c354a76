"""Encoders, which convert an observation of any space into a feature vector [N, features_dim]."""

from __future__ import annotations

import math
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlsdk.errors import UnsupportedSpaceError
from rlsdk.records import Features
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, shape_of


class Encoder(Protocol):
    """A module with `features_dim`. `forward` maps observations to features float32 [N, features_dim]."""

    features_dim: int

    def __call__(self, features: Features) -> Tensor: ...


def features_dim(encoder: nn.Module) -> int:
    """The width of an encoder's output."""
    return cast("Encoder", encoder).features_dim


TABLE = 256
"""Up to this number of values, one-hot rows are looked up in a table, which takes a third of the time."""


class FlattenEncoder(nn.Module):
    """Converts an observation to one vector: numbers unchanged, discrete values one-hot, images divided by 255.

    Images are not divided if `normalize_images` is off. The encoder has no parameters.
    """

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
            parts = zip(features.long().unbind(-1), self.space.start, self.space.nvec, strict=True)
            return torch.cat([one_hot(column - low, n) for column, low, n in parts], dim=-1).float()
        flat = features.reshape(-1, self.features_dim).float()
        return flat if self.divisor is None else flat / self.divisor
