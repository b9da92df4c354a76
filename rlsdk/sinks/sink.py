"""What a metric sink is: the class `Sink`, and the values that it receives: numbers, texts, pictures, videos."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from enum import Enum
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import attrs
import numpy as np
from torch import Tensor

from rlsdk.errors import SettingsError, one_line, shown

Scalar = bool | int | float | str | None
"""The types in which a sink receives the value of a setting."""


@runtime_checkable
class MetricSink(Protocol):
    """Any object with these two methods receives metrics. It may also have the other members of `Sink`."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Sink:
    """Receives metrics when they are logged. A class of your own derives from it, or has methods of the same names.

        class Printer(Sink):
            def write(self, step, values):
                print(step, values["rollout/ep_rew_mean"])

    Every method does nothing until it is overridden. One that raises an exception costs a warning; training continues.
    """

    format = ""
    """The name that excludes the sink in `Logger.record(exclude=)`."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers. Steps never decrease; the names are listed in docs/metrics.md."""

    def close(self) -> None:
        """Write what is left, and close files."""

    def flush(self) -> None:
        """Write the buffered values."""

    def hyperparameters(self, values: Mapping[str, Scalar]) -> None:
        """Show the settings `values`. It is called once, when training starts."""

    def histograms(self, step: int, tensors: Mapping[str, object]) -> object:
        """Draw a histogram of each tensor [..]; return False if nothing was drawn. A callback calls it."""
        return False

    def media(self, step: int, values: Mapping[str, object]) -> Sequence[str]:
        """Show texts, None, arrays or tensors with several entries, or the objects of `rlsdk.sinks.sink`, and return the
        names of the values that were shown.

        The logger passes all values of a step in one call. If this raises an exception, it passes each value alone.
        """
        return ()

    def begin_run(self, details: Mapping[str, Scalar], *, resumed: bool) -> None:
        """Begin a run. The commands that train call it once, before anything else; an error ends the run before it trains.

        Args:
            details: algorithm, env, seed, steps and other options of the run.
            resumed: whether the run continues an earlier one, whose values the sink has received.
        """

    def take_files(self, paths: Sequence[Path]) -> None:
        """Store these files: agents, settings and videos. `rlsdk run` calls it when training has ended."""


def method_of(sink: object, name: str) -> Callable[..., Any]:
    """The method of a sink, or that of `Sink`, which does nothing, if the sink has none of this name."""
    found: Callable[..., Any] = getattr(sink, name, None) or getattr(Sink(), name)
    return found


@attrs.frozen(eq=False)
class Image:
    """A picture.

    Args:
        image: array or tensor, float in [0, 1] or uint8.
        dataformats: order of the axes of `image`, such as "HWC", "CHW", "HW" (height, width, channels).
    """

    image: object
    dataformats: str = "HWC"


@attrs.frozen(eq=False)
class Figure:
    """A matplotlib figure. It is closed after it was logged, unless `close` is False."""

    figure: object
    close: bool = True


@attrs.frozen(eq=False)
class Video:
    """Videos as frames [N, T, C, H, W] of uint8, shown at `fps` frames per second (needs the extra `video`)."""

    frames: object
    fps: float = 30.0


@attrs.frozen(eq=False)
class HParam:
    """Hyper-parameters (name -> value), and the metrics by which they are compared (name -> first value)."""

    hparam_dict: Mapping[str, bool | str | float | None]
    metric_dict: Mapping[str, float]


PROBE = 4096
"""Bytes."""


def writable_folder(folder: Path) -> Path:
    """The folder, made if need be; raises SettingsError where that is not possible, or the disk is full: the thread of
    TensorBoard's writer would print a traceback."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE))
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None
    return folder


def unwritable(folder: Path, error: Exception) -> SettingsError:
    """The error for a folder that metrics cannot be written into."""
    reason = getattr(error, "strerror", None) or error
    return SettingsError(f"metrics cannot be written into {str(folder)!r}: {reason}; choose another folder")


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
        except (OverflowError, ValueError):  # an integer beyond every float, a signaling NaN
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
