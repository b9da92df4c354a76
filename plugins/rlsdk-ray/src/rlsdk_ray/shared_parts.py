"""Puts large arrays that several items share into Ray's object store once, and sends references to them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import ray
from numpy.typing import NDArray

LARGE = 100_000
"""The size in bytes from which an array is sent by reference. Ray sends smaller values in the message."""


class SharedPart:
    """An array in the object store. Unpickling it gives the array itself, as a read-only view."""

    def __init__(self, reference: ray.ObjectRef[NDArray[np.generic]]) -> None:
        self.reference = reference

    def __reduce__(self) -> tuple[object, ...]:
        return ray.get, (self.reference,)


def with_shared_parts(items: Sequence[object]) -> list[object]:
    """Return the items with shared arrays replaced by references: large arrays that several attrs records have in their fields.

    An item may be a list of records.
    """
    counts = Counter(id(array) for item in items for array in _arrays(item))
    known: dict[int, SharedPart] = {}

    def shared(array: NDArray[np.generic]) -> SharedPart:
        if id(array) not in known:
            known[id(array)] = SharedPart(ray.put(array))
        return known[id(array)]

    def changed(record: Any) -> object:
        fields = {name: shared(value) for name, value in _large(record) if counts[id(value)] > 1}
        return attrs.evolve(record, **fields) if fields else record

    return [[changed(each) for each in item] if isinstance(item, list) else changed(item) for item in items]


def warn_of_size(item: object, store: float) -> None:
    """Warn if the arrays of an item are larger than an object store of `store` bytes."""
    size = sum(array.nbytes for array in _arrays(item)) if not isinstance(item, np.ndarray) else item.nbytes
    if size > store:
        warnings.warn(
            f"an item of {size / 1e6:.0f} MB is larger than the object store of Ray, {store / 1e6:.0f} MB, so it goes through"
            " files, which is slow; start Ray with a larger --object-store-memory, or make smaller items",
            RuntimeWarning,
            stacklevel=4,
        )


def _arrays(item: object) -> Iterator[NDArray[np.generic]]:
    """The large arrays in the fields of a record, or of a list of records."""
    for record in item if isinstance(item, list) else [item]:
        yield from (value for _, value in _large(record))


def _large(record: object) -> list[tuple[str, NDArray[np.generic]]]:
    kind = type(record)
    if not attrs.has(kind):
        return []
    fields = ((field.name, getattr(record, field.name)) for field in attrs.fields(kind))
    return [
        (name, value)
        for name, value in fields
        if isinstance(value, np.ndarray) and value.nbytes >= LARGE and not value.dtype.hasobject
    ]
