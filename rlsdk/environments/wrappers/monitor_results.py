"""Reads monitor files, and plots their learning curves."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.wrappers.monitor import SUFFIX
from rlsdk.errors import SettingsError
from rlsdk.runtime.pip_commands import pip_install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"timesteps": "environment steps", "episodes": "episodes", "walltime_hrs": "hours"}
WINDOW = 100
"""The number of episodes in the moving average of a curve."""


def load_results(folder: str | Path) -> dict[str, list[float]]:
    """The episodes of all monitor files in a folder, in the order in which they ended.

    The columns are `r` (return), `l` (number of steps) and `t` (seconds since the first monitor began).

    Raises:
        SettingsError: the folder has no monitor file, or a file is damaged.
    """
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise SettingsError(f"{folder} holds no *{SUFFIX} file")
    rows: list[tuple[float, float, float]] = []
    first = math.inf
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                start = float(json.loads(stream.readline()[1:])["t_start"])
                first = min(first, start)
                rows += [(start + float(row["t"]), float(row["r"]), float(row["l"])) for row in csv.DictReader(stream)]
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a monitor file: {type(error).__name__}: {error}") from None
    rows.sort()
    return {"r": [r for _, r, _ in rows], "l": [length for *_, length in rows], "t": [t - first for t, *_ in rows]}


def ts2xy(
    results: Mapping[str, Sequence[float]], x_axis: str = "timesteps"
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """(x [E], return [E]) of E episodes from `load_results`.

    `x_axis`: the unit of x, `timesteps`, `episodes` or `walltime_hrs`.

    Raises:
        SettingsError: `x_axis` is another unit.
    """
    returns = np.asarray(results["r"], np.float64)
    if x_axis == "timesteps":
        return np.cumsum(np.asarray(results["l"], np.float64)).astype(np.int64), returns
    if x_axis == "episodes":
        return np.arange(len(returns)), returns
    if x_axis == "walltime_hrs":
        return np.asarray(results["t"], np.float64) / 3600.0, returns
    raise SettingsError(f"x_axis = {x_axis!r} is unknown; accepted: {', '.join(AXES)}")


def plot_results(
    dirs: Sequence[str | Path],
    num_timesteps: int | None = None,
    x_axis: str = "timesteps",
    task_name: str = "",
    figsize: tuple[float, float] = (8, 2),
) -> Figure:
    """A matplotlib figure with episodes as points and their moving average over `WINDOW` episodes as a line.

    Args:
        dirs: folders with monitor files.
        num_timesteps: episodes that ended after this number of steps are left out; None: no limit.
        x_axis: the unit of the x axis, see `ts2xy`.
        task_name: the title of the figure.
        figsize: (width, height) in inches.

    Raises:
        SettingsError: a folder has no monitor files, `x_axis` is unknown, or matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError(f"plot_results needs matplotlib: {pip_install('matplotlib')}") from None
    figure = Figure(figsize=figsize)
    axes = figure.add_subplot()
    for folder in [dirs] if isinstance(dirs, str | Path) else dirs:
        results = load_results(folder)
        known = np.cumsum(results["l"]) <= (np.inf if num_timesteps is None else num_timesteps)
        x, y = (values[known] for values in ts2xy(results, x_axis))
        axes.scatter(x, y, s=2)
        if len(x) >= WINDOW:
            axes.plot(x[WINDOW - 1 :], np.convolve(y, np.ones(WINDOW) / WINDOW, "valid"), label=str(folder))
    axes.set(title=task_name, xlabel=AXES[x_axis], ylabel="return")
    figure.tight_layout()
    return figure
