"""MuJoCo's simulation: the arrays that its next step reads."""

from __future__ import annotations

from typing import Any

import numpy as np

CLASS = "mujoco._structs.MjData"
MADE_ANEW = ("efc_", "iefc_", "map_", "island_", "contact")
"""Names of arrays that every step makes anew, with as many rows as there are contacts."""


def fields(data: Any) -> list[str]:
    """Arrays whose size depends on the model alone."""
    import mujoco

    fresh = mujoco.MjData(data.model)
    names = [name for name in dir(fresh) if not name.startswith("_") and isinstance(getattr(fresh, name), np.ndarray)]
    return [
        name
        for name in names
        if getattr(fresh, name).shape == getattr(data, name).shape and not name.startswith(MADE_ANEW)
    ]
