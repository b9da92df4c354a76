"""Preprocesses observations for users' own networks, as stable-baselines3 does."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.records import Features
from rlsdk.spaces import Box, Discrete, MultiDiscrete, Space, dtype_of, leaf_spaces, map_leaves, map_space, shape_of


class Preprocessor(nn.Module):
    """Converts observations to float32: images with channels first, Discrete and MultiDiscrete values one-hot.

    With `normalize_images`, images are divided by 255. There are no parameters.
    """

    def __init__(self, space: Space, *, normalize_images: bool) -> None:
        super().__init__()
        self.space, self.normalize_images = space, normalize_images
        own = {path: leaf for path, leaf in leaf_spaces(space) if isinstance(leaf, Discrete | MultiDiscrete)}
        self._one_hot = {path: i for i, path in enumerate(own)}
        self.one_hot = nn.ModuleList(FlattenEncoder(leaf) for leaf in own.values())

    def forward(self, features: Features) -> Features:
        """Preprocess observations [N, ..]; both input and output are nested like the space."""
        return map_leaves(self.space, self._preprocessed, features)

    def _preprocessed(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        if path in self._one_hot:
            hot: Tensor = self.one_hot[self._one_hot[path]](values)
            return hot
        if not isinstance(leaf, Box) or not leaf.is_image:
            return values.float()
        pixels = (values.movedim(-1, -3) if leaf.channels_last else values).float()
        return pixels / 255.0 if self.normalize_images else pixels


def channels_first(space: Space) -> Space:
    """The space with images whose first axis is the channels."""

    def leaf(given: Space) -> Space:
        if not isinstance(given, Box) or not given.is_image or not given.channels_last:
            return given
        low, high = (np.moveaxis(bound, -1, 0) for bound in (given.low, given.high))
        return Box(low, high, low.shape, given.dtype)

    return map_space(space, leaf)


def example_features(space: Space, rows: int) -> Features:
    """Return valid observations [rows, ..] of the space (its first values), to examine the output of a network."""

    def leaf(path: str, given: Space) -> Tensor:
        values = torch.zeros((rows, *shape_of(given)), dtype=getattr(torch, dtype_of(given)))
        return values + torch.tensor(given.start) if isinstance(given, Discrete | MultiDiscrete) else values

    return map_leaves(space, leaf)
