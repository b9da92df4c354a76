"""Nested tensors packed into one array of bytes, to send them to another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64


@attrs.frozen
class Place:
    """The offset of a tensor in the array of bytes (`start`), with its shape and dtype."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@attrs.frozen(eq=False)
class Packed:
    """Nested dataclasses, mappings, tuples and lists of tensors and plain values, packed for sending.

    All tensors are in one array, which can be sent through shared memory.
    """

    nest: object
    """The nested value, with a `Place` instead of each tensor."""
    data: NDArray[np.uint8]
    """uint8 [number of bytes]: the tensors one after another, each aligned to `ALIGNMENT` bytes."""

    @staticmethod
    def of(value: object) -> Packed:
        """Pack `value`; its tensors [..] are copied."""
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
        """Return the nested value, with copies of the tensors."""
        data = self.data  # the tensors below are copies: this array may be in shared memory that is overwritten later

        def tensor(place: Place) -> Tensor:
            size = place.dtype.itemsize
            for length in place.shape:
                size *= length
            own = torch.from_numpy(data[place.start : place.start + size].copy())
            return own.view(place.dtype).view(place.shape)

        return _mapped(self.nest, Place, tensor)


def _mapped(node: Any, kind: type, function: Callable[[Any], object]) -> Any:
    """Return the nested value `node`, with `function(leaf)` in place of every leaf of the class `kind`."""
    if isinstance(node, kind):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _mapped(value, kind, function) for key, value in node.items()}
    if (names := _fields(node.__class__)) is not None:
        return type(node)(*[_mapped(getattr(node, name), kind, function) for name in names])
    if isinstance(node, tuple | list):
        found = [_mapped(value, kind, function) for value in node]
        return found if isinstance(node, list) else tuple(found)
    return node


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; None for other classes."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None
