"""What monitor files hold: tables, curves and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.wrappers.monitor import SUFFIX
from rlsdk.errors import SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"timesteps": "environment steps", "episodes": "episodes", "walltime_hrs": "hours"}
WINDOW = 100
"""Episodes a curve is averaged over."""


def load_results(folder: str | Path) -> dict[str, list[float]]:
    """Columns `r`, `l` and `t` of all monitor files in a folder together, in the order episodes ended.

    Raises:
        SettingsError: the folder holds none, or a damaged one.
    """
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise SettingsError(f"{folder} holds no *{SUFFIX} file")
    rows: list[tuple[float, float, float]] = []
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                start = float(json.loads(stream.readline()[1:])["t_start"])
                rows += [(start + float(row["t"]), float(row["r"]), float(row["l"])) for row in csv.DictReader(stream)]
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a monitor file: {type(error).__name__}: {error}") from None
    rows.sort()
    first = rows[0][0] if rows else 0.0
    return {"r": [r for _, r, _ in rows], "l": [length for *_, length in rows], "t": [t - first for t, *_ in rows]}


def ts2xy(
    results: Mapping[str, Sequence[float]], x_axis: str = "timesteps"
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """(x [E], return [E]) of E episodes, as `load_results` gives them; x counts `timesteps`, `episodes` or `walltime_hrs`.

    Raises:
        SettingsError: another axis.
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
    """A matplotlib figure: the episodes of monitor folders as points, their mean over `WINDOW` episodes as a line.

    Args:
        dirs: folders with monitor files.
        num_timesteps: leave out episodes that ended later; None: all.
        x_axis: see `ts2xy`.
        task_name: the title.
        figsize: inches.

    Raises:
        SettingsError: a folder without monitor files, another axis, or matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError("plot_results needs matplotlib; pip install rlsdk[plot]") from None
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
