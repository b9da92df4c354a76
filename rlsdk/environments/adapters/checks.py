"""Checks of the values that `step` returns. Callers skip them for values of the usual types, to save function calls."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import EnvironmentFault, message_of, shown

NUMBERS = frozenset((float, int, np.float64, np.float32, np.float16, np.int64, np.int32))
"""Types of rewards that `float` converts correctly, so that they need no check, except for ints above `LARGEST_INT`."""
LARGEST_INT = 2**127
FLOAT32_MAX = 3.4028234663852886e38
"""The largest number in float32, to which rewards and entries of `info` are converted."""
FLAGS = frozenset((bool, np.bool_))
"""Types of `terminated` and `truncated` that need no check."""
STEP = "step must return (observation, reward, terminated, truncated, info)"
OLDER_API = {
    r"unexpected keyword argument '(seed|options)'": "write reset(self, *, seed=None, options=None), and in it"
    " super().reset(seed=seed)",
    r"values to unpack \(expected 5": STEP,
    r"values to unpack \(expected 2": "reset must return (observation, info)",
}
"""The message of a caller of an environment of an older API, as a pattern, and what to write."""
CALLERS = ("gymnasium", "rlsdk", "stable_baselines3")
"""Packages that call environments, or wrap them."""


def by_caller(error: BaseException) -> bool:
    """Whether the code that calls environments raised an error, not their own code or what that called."""
    places = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(places) and places[-1].partition(".")[0] in CALLERS


def mended_by(error: BaseException) -> str:
    """The fix for an error of those who call an environment of an older API, with a semicolon before it; otherwise ""."""
    found = (fix for pattern, fix in OLDER_API.items() if re.search(pattern, message_of(error)))
    return next((f"; {fix}" for fix in found), "") if by_caller(error) else ""


def number(value: object) -> float:
    """A reward as a float. It may be a number, or an array or tensor with one number.

    Raises:
        EnvironmentFault: it is something else, such as a text that looks like a number.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biuf":  # of an int of many digits the dtype is object
        raise EnvironmentFault(
            f"gave the reward {shown(value, 60)} ({type(value).__name__}); it must be a finite float32"
        )
    return float(array.item())


def flag(value: object, name: str) -> bool:
    """`terminated` or `truncated` as a bool. It may be a bool, 0 or 1, or an array or tensor with one of them.

    Raises:
        EnvironmentFault: it is something else, such as "False" or None, although Python could convert it to a bool.
    """
    array = _one(value)
    if array is None or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise EnvironmentFault(f"gave {name} = {shown(value)} ({type(value).__name__}); it must be True or False")
    return bool(array.item())


def success(info: Mapping[str, object]) -> bool | None:
    """The entry `is_success` of an info as a bool; None if it is missing.

    Raises:
        EnvironmentFault: the entry is not a single number or bool.
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
    """The entry `name` of an info, which the algorithm declared, as a float.

    Raises:
        EnvironmentFault: the entry is missing, or it is not a finite float32.
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
    """The value as an array if it has exactly one entry, else None."""
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.size == 1 and array.dtype != object else None
