"""What the values of a step may be; the checks of the usual types cost no call."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import EnvironmentFault, shown

NUMBERS = frozenset((float, int, np.float64, np.float32, np.float16, np.int64, np.int32))
"""Types of rewards that `float` converts as meant."""
FLOAT32_MAX = 3.4028234663852886e38
"""Rewards and entries of `info` are converted to float32."""
FLAGS = frozenset((bool, np.bool_))
"""Types of `terminated` and `truncated` that need no look."""


def number(value: object) -> float:
    """A reward as a float: a number, or an array or tensor of one.

    Raises:
        EnvironmentFault: anything else; text that reads like a number too.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biuf":
        raise EnvironmentFault(f"gave the reward {shown(value)} ({type(value).__name__}); it must be a finite float32")
    return float(array.item())


def flag(value: object, name: str) -> bool:
    """`terminated` or `truncated`: a bool, 0 or 1, or an array or tensor of one of them.

    Raises:
        EnvironmentFault: anything else, such as "False" or None, which Python would take for true or false.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise EnvironmentFault(f"gave {name} = {shown(value)} ({type(value).__name__}); it must be True or False")
    return bool(array.item())


def success(info: Mapping[str, object]) -> bool | None:
    """`is_success` of an info; None where there is none.

    Raises:
        EnvironmentFault: it is not one truth value.
    """
    value = info.get("is_success")
    if value is None or type(value) is bool:
        return value
    array = _one(value)
    if array is None or array.dtype.kind not in "biuf":
        raise EnvironmentFault(
            f"gave info['is_success'] = {shown(value)} ({type(value).__name__}); it must be True or False"
        )
    return bool(array.item())


def entry(info: Mapping[str, object], name: str) -> float:
    """The declared entry `name` of an info.

    Raises:
        EnvironmentFault: it is missing, or no finite number.
    """
    if name not in info:
        raise EnvironmentFault(
            f"gave no info[{name!r}], which the algorithm needs at every step; the info has {shown(sorted(map(str, info)))}"
        )
    value = info[name]
    array = None if isinstance(value, str | bytes) else _one(value)
    found = float(array.item()) if array is not None and array.dtype.kind in "biuf" else math.nan
    if not abs(found) <= FLOAT32_MAX:
        raise EnvironmentFault(
            f"gave info[{name!r}] = {shown(value)} ({type(value).__name__}); it must be a finite float32"
        )
    return found


def require_info(info: object) -> None:
    """Raises EnvironmentFault when `info` is not a mapping."""
    if not isinstance(info, Mapping):
        raise EnvironmentFault(f"gave info = {shown(info)} ({type(info).__name__}); it must be a dict")


def _one(value: object) -> NDArray[np.generic] | None:
    """An array of exactly one entry, or None."""
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.size == 1 and array.dtype != object else None
