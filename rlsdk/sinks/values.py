"""The kinds of values that sinks get for what users record: numbers, texts, None, arrays and the objects of `media`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from enum import Enum
from numbers import Real
from os import PathLike
from typing import Any, cast

import numpy as np
from torch import Tensor

from rlsdk.errors import one_line, shown
from rlsdk.sinks.media import Figure, HParam, Image, Video

MOST_ENTRIES = 1000
"""The largest number of entries of an array that sinks of texts write; TensorBoard and trackers draw any as a histogram."""
DEEPEST = 8
"""Tables in tables to this depth are written; a table that holds itself has no end."""
DRAWN = (Image, Figure, Video, HParam)


def entries_of(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """(name, value) of everything that sinks get for one recorded value.

    A table (name -> value) gives one entry per value, under `name/key`. Lists of numbers become arrays, other lists and paths
    texts. A value of another kind is returned unchanged: no sink can show it.
    """
    if (number := number_of(value)) is not None:
        yield name, number
    elif isinstance(value, Mapping) and value and depth < DEEPEST:
        for key, item in value.items():
            yield from entries_of(f"{name}/{key}", item, depth + 1)
    else:
        yield name, _plain(value)


def number_of(value: object) -> float | None:
    """A number, or the entry of an array or tensor with one entry, as a Python number; None for anything else."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        count = value.numel() if isinstance(value, Tensor) else value.size
        value = value.item() if count == 1 else None
    if isinstance(value, float):
        return value
    if isinstance(value, Real | Decimal):
        try:
            size = float(value)
        except (OverflowError, ValueError):  # an integer beyond every float, a signalling NaN
            return None
        return value if isinstance(value, int) else size
    return None


def listed(value: object) -> list[Any] | None:
    """The numbers of an array or tensor as nested lists, with None for NaN and infinity, which JSON lacks.

    None if it has more than `MOST_ENTRIES` entries, or is not an array.
    """
    if not isinstance(value, Tensor | np.ndarray) or math.prod(value.shape) > MOST_ENTRIES:
        return None
    return cast("list[Any]", _finite(value.tolist()))


def in_words(value: object) -> str | None:
    """The text with which sinks of texts show a value that is not a number, on one line; None if they cannot."""
    if value is None or isinstance(value, str):
        return "" if value is None else one_line(value)
    found = listed(value)
    return None if found is None else json.dumps(found)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, *DRAWN)):
        return value
    if isinstance(value, int):
        return shown(value, MOST_ENTRIES)
    if isinstance(value, PathLike | Enum | complex | np.generic):
        return one_line(value, MOST_ENTRIES)
    if isinstance(value, Tensor):
        return value if value.numel() and not value.is_complex() else str(value.tolist())
    if isinstance(value, np.ndarray):
        return value if value.size and value.dtype.kind in "biuf" else _plain(value.tolist()) if value.ndim else value
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray | memoryview):
        return _of_list(list(value), value)
    return "{}" if isinstance(value, Mapping) and not value else value


def _of_list(items: list[object], value: object) -> object:
    """A list as an array of its numbers, else as a text; `value` if it holds anything else."""
    try:
        numbers = _numbers_in(items)
        array = np.asarray(numbers)
        if array.size and array.dtype.kind in "biuf":
            return array
    except (TypeError, ValueError, RecursionError):  # no numbers, rows of several lengths, a list that holds itself
        pass
    try:
        return json.dumps(items, ensure_ascii=False, default=_as_text)
    except (TypeError, ValueError, RecursionError):
        return value


def _numbers_in(items: list[object]) -> list[object]:
    found: list[object] = [
        _numbers_in(list(item)) if isinstance(item, list | tuple) else number_of(item) for item in items
    ]
    if any(item is None for item in found):
        raise TypeError
    return found


def _as_text(value: object) -> object:
    if (number := number_of(value)) is not None:
        return number
    if isinstance(value, Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, Set):
        return list(value)
    if isinstance(value, PathLike | Enum | complex):
        return str(value)
    raise TypeError
