"""MuJoCo's simulation: the arrays that its next step reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import ArtifactError

CLASS = "mujoco._structs.MjData"
REBUILT = ("efc_", "iefc_", "map_", "island_", "contact")
"""Names of arrays that every step builds again, with as many rows as there are contacts."""
SWITCHES = ("eq_active",)
"""Arrays of truth values that are state. Other whole numbers are indices into MuJoCo's memory, which every step
builds again: a file does not choose them."""


def fields(data: Any) -> list[str]:
    """Arrays of numbers whose size depends on the model alone."""
    import mujoco

    fresh = mujoco.MjData(data.model)
    names = [name for name in dir(fresh) if not name.startswith("_") and isinstance(getattr(fresh, name), np.ndarray)]
    return [
        name
        for name in names
        if getattr(fresh, name).shape == getattr(data, name).shape
        and not name.startswith(REBUILT)
        and (getattr(fresh, name).dtype.kind == "f" or name in SWITCHES)
    ]


def put_back(data: Any, time: float, stored: Mapping[str, NDArray[np.generic]]) -> None:
    """Put stored arrays into the simulation.

    Raises:
        ArtifactError: one is of another shape or dtype, or the time is none.
    """
    if class_name(data) != CLASS or not math.isfinite(time):
        raise ArtifactError("the file is damaged: an environment's state holds a simulation that cannot be")
    known = [name for name in fields(data) if name in stored]
    for name in known:
        own, value = getattr(data, name), stored[name]
        if value.shape != own.shape or value.dtype != own.dtype:
            raise ArtifactError(f"the file is damaged, or of another simulation: its {name} does not fit")
    data.time = time
    for name in known:
        getattr(data, name)[...] = stored[name]


def class_name(value: object) -> str:
    """Module and name of the class of a value."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
