"""Encodes observations as vectors in numpy, for policies that act without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, choices_of, leaf_spaces, shape_of

Vector = NDArray[np.float64]


def encoded(space: Space, observation: Any) -> Vector:
    """Encode an observation as one vector, float64 [F]: numbers unchanged, discrete values one-hot, images divided by 255."""
    return encoder_of(space)(observation)


def encoder_of(space: Space) -> Callable[[Any], Vector]:
    """Return the function that computes `encoded` for one space. The kind of the space is examined once, not at every step."""
    if isinstance(space, Dict):
        entries = [(key, encoder_of(child)) for key, child in space.spaces.items()]
        return lambda observation: np.concatenate([encode(observation[key]) for key, encode in entries])
    if isinstance(space, Tuple):
        parts = [encoder_of(child) for child in space.spaces]
        return lambda observation: np.concatenate([encode(own) for encode, own in zip(parts, observation, strict=True)])
    if isinstance(space, Discrete):
        return lambda observation: _one_hot(space.n, int(observation) - space.start)
    if isinstance(space, MultiDiscrete):
        start = np.asarray(space.start)

        def one_hot(observation: ArrayLike) -> Vector:
            columns = zip(space.nvec, np.asarray(observation) - start, strict=True)
            return np.concatenate([_one_hot(n, int(value)) for n, value in columns])

        return one_hot
    if isinstance(space, Box) and space.is_image:
        return lambda observation: np.asarray(observation, np.float64).reshape(-1) / 255.0
    return flat_vector


def flat_vector(observation: ArrayLike) -> Vector:
    """Return numbers unchanged as one vector, float64 [F]."""
    return np.asarray(observation, np.float64).reshape(-1)


def _one_hot(count: int, which: int) -> Vector:
    row = np.zeros(count)
    row[which] = 1.0
    return row


def encoded_slices(space: Space, path: str = "observation") -> dict[str, slice]:
    """The position of each leaf of a space in the vector of `encoded`, by the leaf's path."""
    slices, start = dict[str, slice](), 0
    for leaf_path, leaf in leaf_spaces(space, path):
        size = sum(choices_of(leaf)) if isinstance(leaf, Discrete | MultiDiscrete) else math.prod(shape_of(leaf))
        slices[leaf_path] = slice(start, start + size)
        start += size
    return slices
