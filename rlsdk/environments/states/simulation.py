"""Reads and restores the state of a MuJoCo simulation: the arrays that its next step reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import ArtifactError

CLASS = "mujoco._structs.MjData"
REBUILT = ("efc_", "iefc_", "map_", "island_", "contact")
"""Beginnings of names of arrays that every step computes again. Their number of rows depends on the contacts."""
SWITCHES = ("eq_active",)
"""Arrays of truth values that belong to the state. Other arrays of integers are indices into MuJoCo's memory, which every step
computes again; values from a file must not replace them."""


_SHAPES: WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = WeakKeyDictionary()
"""Model -> name of an array -> its shape in a new simulation. This is a cache: finding the arrays takes almost 1 ms."""


def fields(data: Any) -> dict[str, NDArray[np.generic]]:
    """Name -> array of the state: float arrays and `SWITCHES` whose size depends only on the model."""
    shapes = _SHAPES.get(data.model)
    if shapes is None:
        shapes = _SHAPES[data.model] = _first_shapes(data.model)
    found = {name: getattr(data, name) for name in shapes}
    return {name: array for name, array in found.items() if array.shape == shapes[name]}


def _first_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    import mujoco

    fresh = mujoco.MjData(model)
    arrays = {name: getattr(fresh, name) for name in dir(fresh) if not name.startswith(("_", *REBUILT))}
    return {
        name: array.shape
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and (array.dtype.kind == "f" or name in SWITCHES)
    }


def gathered(data: Any) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """(name -> number of bytes of each array, all arrays concatenated as bytes).

    Storing and sending a hundred small arrays separately takes ten times as long.
    """
    found = fields(data)
    joined = bytearray().join(map(np.ndarray.tobytes, found.values()))
    return {name: array.nbytes for name, array in found.items()}, np.frombuffer(joined, np.uint8)


def put_back(data: Any, time: float, sizes: Mapping[str, int], stored: NDArray[Any]) -> None:
    """Copy arrays from `gathered` into a simulation, and set its time. Arrays that the simulation lacks are ignored.

    Raises:
        ArtifactError: an array has another size, the time is not finite, or `data` is not a simulation.
    """
    are_sizes = all(type(size) is int and size >= 0 for size in sizes.values())
    if class_name(data) != CLASS or not math.isfinite(time) or stored.dtype != np.uint8 or not are_sizes:
        raise ArtifactError("the file is damaged: an environment's state holds a simulation that cannot be")
    own, flat, parts, start = fields(data), stored.reshape(-1), dict[str, NDArray[np.generic]](), 0
    for name, size in sizes.items():
        if name in own:
            part = flat[start : start + size]
            if not part.nbytes == size == own[name].nbytes or (name in SWITCHES and (part > 1).any()):
                raise ArtifactError(f"the file is damaged, or of another simulation: its {name} does not fit")
            parts[name] = part.view(own[name].dtype).reshape(own[name].shape)
        start += size
    data.time = time
    for name, part in parts.items():
        own[name][...] = part


def class_name(value: object) -> str:
    """The module and the name of the class of a value, joined by a dot."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
