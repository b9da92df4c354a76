"""A nest of tensors as one array of bytes, on its way to another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64


@attrs.frozen
class Place:
    """Where a tensor lies in the bytes."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@attrs.frozen(eq=False)
class Packed:
    """Records, mappings, tuples and lists of tensors and plain values; the tensors are in one array, which can go through
    shared memory."""

    nest: object
    """The same nest with a `Place` for each tensor."""
    data: NDArray[np.uint8]

    @staticmethod
    def of(value: object) -> Packed:
        """Copies the tensors."""
        parts, places, end = list[Tensor](), list[int](), 0

        def place(leaf: Tensor) -> Place:
            nonlocal end
            flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            start = end
            parts.append(flat)
            places.append(start)
            end += -(-len(flat) // ALIGNMENT) * ALIGNMENT
            return Place(start, tuple(leaf.shape), leaf.dtype)

        nest, data = _mapped(value, Tensor, place), np.zeros(end, np.uint8)
        target = torch.from_numpy(data)
        for start, flat in zip(places, parts, strict=True):
            target[start : start + len(flat)] = flat
        return Packed(nest, data)

    def value(self) -> Any:
        """The nest with tensors of its own."""
        data = self.data  # copied: it may be in memory that is written again

        def tensor(place: Place) -> Tensor:
            size = place.dtype.itemsize
            for length in place.shape:
                size *= length
            own = torch.from_numpy(data[place.start : place.start + size].copy())
            return own.view(place.dtype).view(place.shape)

        return _mapped(self.nest, Place, tensor)


def _mapped(node: Any, kind: type, function: Callable[[Any], object]) -> Any:
    """The nest with `function(leaf)` for every leaf of this kind."""
    if isinstance(node, kind):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _mapped(value, kind, function) for key, value in node.items()}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return type(node)(*[_mapped(getattr(node, f.name), kind, function) for f in dataclasses.fields(node)])
    if isinstance(node, tuple | list):
        found = [_mapped(value, kind, function) for value in node]
        return found if isinstance(node, list) else tuple(found)
    return node
