"""Numpy arrays and tensors nested as a space: one array for a leaf, a dict or tuple of such values for a Dict or Tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.spaces import Dict, Space, Tuple

T = TypeVar("T")
ScalarT = TypeVar("ScalarT", bound=np.generic)
Nested: TypeAlias = "T | dict[str, Nested[T]] | tuple[Nested[T], ...]"
"""One value of a leaf space; a dict or tuple of such values where the space is a Dict or Tuple."""
Array: TypeAlias = "NDArray[np.bool_ | np.integer | np.floating]"
Arrays: TypeAlias = "Nested[Array]"
Tensors: TypeAlias = "Nested[Tensor]"


class Allocate(Protocol):
    """A function that allocates numpy arrays, as `np.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[ScalarT], /) -> NDArray[ScalarT]: ...


def parts_of(space: Space) -> list[tuple[str | int, Space]]:
    """(key or position, space) of each part of a Dict or Tuple; an empty list for a leaf."""
    if isinstance(space, Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, Tuple) else []


def rows_of(arrays: Arrays, rows: slice | list[int] | int) -> Arrays:
    """The selected rows of arrays [B, ..]: views for a slice, copies for a list, one row [..] for a number."""
    if isinstance(arrays, dict):
        return {key: rows_of(value, rows) for key, value in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(rows_of(value, rows) for value in arrays)
    found: Array = arrays[rows]
    return found


def tensors_of(arrays: Arrays, *, fresh: bool = False) -> Tensors:
    """Arrays [..] as tensors [..]. With `fresh=True` they are copies, otherwise they share memory with the arrays."""
    if isinstance(arrays, dict):
        return {key: tensors_of(value, fresh=fresh) for key, value in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(tensors_of(value, fresh=fresh) for value in arrays)
    return torch.from_numpy(arrays.copy() if fresh else arrays)


def concatenated(parts: Sequence[Arrays]) -> Arrays:
    """Arrays [N, ..] with the same nesting, concatenated along the first axis."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: concatenated([part[key] for part in parts if isinstance(part, dict)]) for key in first}
    if isinstance(first, tuple):
        columns = zip(*(part for part in parts if isinstance(part, tuple)), strict=True)
        return tuple(concatenated(column) for column in columns)
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
