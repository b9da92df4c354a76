"""MuJoCo's simulation: the arrays that its next step reads."""

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
"""Names of arrays that every step builds again, with as many rows as there are contacts."""
SWITCHES = ("eq_active",)
"""Arrays of truth values that are state. Other whole numbers are indices into MuJoCo's memory, which every step
builds again: a file does not choose them."""


_SHAPES: WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = WeakKeyDictionary()
"""Model -> name -> shape of the arrays that its simulations begin with. Finding them takes most of a millisecond."""


def fields(data: Any) -> dict[str, NDArray[np.generic]]:
    """Arrays of numbers whose size depends on the model alone, by name."""
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
    """The arrays as bytes, one after another, and how many bytes each has by name: a hundred small arrays take ten times as
    long to store and to send."""
    found = fields(data)
    joined = bytearray().join(map(np.ndarray.tobytes, found.values()))
    return {name: array.nbytes for name, array in found.items()}, np.frombuffer(joined, np.uint8)


def put_back(data: Any, time: float, sizes: Mapping[str, int], stored: NDArray[Any]) -> None:
    """Put what `gathered` gave into the simulation. Arrays that it does not have are left out.

    Raises:
        ArtifactError: an array has another size, or the time is not finite.
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
    """Module and name of the class of a value."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
