"""Learning curves as pictures (extra `plot`)."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError, one_line
from rlsdk.experiments.run_record import RunRecord
from rlsdk.experiments.stored_tables import read_text

AXES = {
    "steps": ("step", 1.0, "environment steps"),
    "episodes": ("time/episodes", 1.0, "training episodes"),
    "hours": ("time/time_elapsed", 1.0 / 3600.0, "hours of training"),
}
EVALUATION, TRAINING = "eval/mean_reward", "rollout/ep_rew_mean"
MAX_METRICS = 1 << 32
"""Bytes."""
GRID = 200
"""Points at which curves of several seeds are compared."""

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def read_metric(path: Path, name: str, x: str = "step") -> tuple[list[float], list[float]]:
    """(x, values) of one column of a run's metrics.csv; rows without the metric are left out.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        rows = [
            row for row in csv.DictReader(read_text(path, MAX_METRICS).splitlines()) if row.get(name) and row.get(x)
        ]
        places, values = [float(row[x]) for row in rows], [float(row[name]) for row in rows]
    except (csv.Error, ValueError, TypeError) as error:
        raise error if isinstance(error, SettingsError) else SettingsError(f"{path} is damaged: {error}") from None
    if not all(map(math.isfinite, places)):
        raise SettingsError(f"{path} is damaged: its column {x} holds a number that is not finite")
    return places, values


def plot_run(folder: Path, output: Path, title: str = "") -> bool:
    """Draw training and evaluation returns of a run directory; False when matplotlib is not installed."""
    try:
        figure, axes = new_figure()
    except SettingsError:
        return False
    metrics = folder / "metrics.csv"
    if metrics.exists():
        axes.plot(*read_metric(metrics, TRAINING), label="training, mean of recent episodes")
        steps, means = read_metric(metrics, EVALUATION)
        deviations = dict(zip(*read_metric(metrics, "eval/std_reward"), strict=True))
        axes.errorbar(
            steps,
            means,
            yerr=[abs(deviations.get(step, 0.0)) for step in steps],
            fmt="o-",
            capsize=3,
            label="evaluation, mean and deviation over episodes",
        )
    axes.set(xlabel="environment steps", ylabel="episode return", title=literal(title))
    if metrics.exists():
        axes.legend(loc="lower right")
    save_figure(figure, output)
    return True


def plot_runs(
    folders: Sequence[Path], output: Path, *, metric: str | None = None, x: str = "steps", smooth: int = 1
) -> list[str]:
    """Draw one metric of many runs; runs of the same algorithm and environment become a line with a band.

    Args:
        folders: run directories.
        output: picture to write.
        metric: its name; None takes evaluations where all runs have them, else training returns.
        x: `steps`, `episodes` or `hours`.
        smooth: points a running mean goes over.

    Returns:
        One line of text per curve: what it shows and its last value.

    Raises:
        SettingsError: no such axis, a folder holds no run, no run has the metric, or matplotlib is not installed.
    """
    if x not in AXES:
        raise SettingsError(f"x = {x!r} must be one of {', '.join(AXES)}")
    if not folders:
        raise SettingsError("give at least one run directory")
    name = metric or _common_metric(folders)
    groups: dict[str, list[Curve]] = {}
    for folder in folders:
        groups.setdefault(_label(folder), []).append(_curve(folder, name, x, smooth))
    figure, axes = new_figure()
    texts = []
    for label, curves in groups.items():
        grid, mean, low, high = _band(curves)
        seeds = f"{label}, {len(curves)} seeds" if len(curves) > 1 else label
        (line,) = axes.plot(grid, mean, label=literal(seeds))
        if len(curves) > 1:
            axes.fill_between(grid, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        texts.append(f"{seeds}: {name} ends at {mean[-1]:.2f}")
    axes.set(xlabel=AXES[x][2], ylabel=literal(name), title=_caption(groups, smooth))
    axes.legend(loc="best")
    output.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, output)
    return texts


def new_figure() -> tuple[Any, Any]:
    """(figure, axes) that no window shows.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError("pictures need matplotlib: pip install rlsdk[plot]") from None
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def literal(text: str) -> str:
    """`text` as a title or label shows it: without control characters, and with dollar signs that begin no formula."""
    return one_line(text).replace("$", r"\$")


def save_figure(figure: Any, output: Path | IO[bytes]) -> None:
    """Write a picture in the format its suffix names; PNG for a stream.

    Raises:
        SettingsError: no such format, or the numbers cannot be drawn.
    """
    try:
        figure.savefig(output, dpi=120, **({} if isinstance(output, Path) else {"format": "png"}))
    except (ValueError, OverflowError, MemoryError) as error:
        raise SettingsError(f"the picture {output} cannot be drawn: {error}") from None


def _caption(groups: dict[str, list[Curve]], smooth: int) -> str:
    """What was done to the numbers."""
    notes = ["mean and range over seeds"] if any(len(curves) > 1 for curves in groups.values()) else []
    notes += [f"running mean over {smooth} points"] if smooth > 1 else ["not smoothed"]
    return "; ".join(notes)


def _label(folder: Path) -> str:
    if not (folder / "run.json").exists():
        raise SettingsError(f"{folder} holds no run: it has no run.json; give directories that `rlsdk run --out` wrote")
    record = RunRecord.read(folder / "run.json")
    return f"{record.algorithm} on {record.env}"


def _common_metric(folders: Sequence[Path]) -> str:
    evaluated = all(len(read_metric(folder / "metrics.csv", EVALUATION)[0]) > 1 for folder in folders)
    return EVALUATION if evaluated else TRAINING


def _curve(folder: Path, name: str, x: str, smooth: int) -> Curve:
    column, factor, _ = AXES[x]
    places, values = read_metric(folder / "metrics.csv", name, column)
    if not places:
        raise SettingsError(f"{folder} has logged no {name!r} over {x}; see its metrics.csv for what there is")
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - smooth)
    return np.asarray(places) * factor, (sums[ends] - sums[starts]) / (ends - starts)


def _band(curves: list[Curve]) -> tuple[NDArray[np.float64], ...]:
    """(x, mean, lowest, highest) where all curves are defined."""
    if len(curves) == 1:
        return curves[0][0], curves[0][1], curves[0][1], curves[0][1]
    start, end = max(places[0] for places, _ in curves), min(places[-1] for places, _ in curves)
    grid = np.linspace(start, max(start, end), GRID)
    rows = np.stack([np.interp(grid, places, values) for places, values in curves])
    return grid, rows.mean(0), rows.min(0), rows.max(0)
