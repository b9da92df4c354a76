"""Learning curves of runs: grouping runs into experiments, and statistics over the seeds of each experiment."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError, one_line, shown
from rlsdk.runs import RunDirectory, read_metric
from rlsdk.runtime import is_edited, write_whole
from rlsdk.settings import load_settings
from rlsdk_lab.statistics import RESAMPLES, iqm, mean, median

Array = NDArray[np.float64]

AXES = {
    "steps": ("step", 1.0, "steps"),
    "episodes": ("time/episodes", 1.0, "training episodes"),
    "time": ("time/time_elapsed", 1.0 / 3600.0, "hours of training"),
}
"""Name of a horizontal axis -> (column of metrics.csv, factor, label). Steps of offline algorithms are updates."""
STATISTICS: dict[str, Callable[[Array], Array]] = {"mean": mean, "iqm": iqm, "median": median}
BANDS = ("interval", "range", "deviation", "none")
EVALUATION, TRAINING = "eval/mean_reward", "rollout/ep_rew_mean"
HEADER, MAX_HEADER = ("environment", "experiment", "seeds", "x", "value", "low", "high"), 1000
"""The header of the CSV file next to a picture, and the characters of an existing file that are compared with it."""
GRID = 200
"""Number of points at which curves of several seeds are interpolated, if the runs logged at different points."""
NO_DIFFERENCE = ("seed", "env", "device", "verbose", "tensorboard_log", "stats_window_size", "_init_setup_model")
"""Settings that do not distinguish experiments."""
SHOWN_DIFFERENCES = 3


def _one_of(names: Sequence[str]) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in names:
            raise SettingsError(f"{attribute.name} = {shown(value)} must be one of {', '.join(names)}")

    return check


def _positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise SettingsError(f"{attribute.name} = {shown(value)} must be a positive whole number")


@attrs.frozen(kw_only=True)
class CurveSettings:
    """Which metric of runs is drawn, and how it is computed."""

    metric: str | None = None
    """A column of metrics.csv. None: evaluations if all runs have them, else training returns."""
    x: str = attrs.field(default="steps", validator=_one_of(tuple(AXES)))
    smooth: int = attrs.field(default=1, validator=_positive)
    """Number of points of the running mean; 1 = no smoothing."""
    statistic: str = attrs.field(default="mean", validator=_one_of(tuple(STATISTICS)))
    """Statistic over seeds: mean, iqm (interquartile mean) or median."""
    band: str = attrs.field(default="interval", validator=_one_of(BANDS))
    """Band around the line: 95 % bootstrap interval of the statistic, range of the seeds, one standard deviation, or none."""


@attrs.frozen(eq=False, kw_only=True)
class Curve:
    """The curve of one metric over the seeds of an experiment: `value` at `x`, with the band from `low` to `high`."""

    env: str
    label: str
    """The algorithm, with the settings in which it differs from other experiments on the same environment."""
    seeds: int
    x: Array
    value: Array
    low: Array
    high: Array


def runs_below(places: Sequence[Path]) -> list[Path]:
    """Return the run directories at or below the given paths, each once.

    Raises:
        SettingsError: no path is given, or there is no run at or below one of them.
    """
    if not places:
        raise SettingsError("give at least one run directory")
    found: dict[Path, None] = {}
    for place in places:
        runs = sorted(path.parent for path in place.rglob("run.json"))
        if not runs:
            raise SettingsError(f"{place} holds no run: no run.json; give directories that `rlsdk run --out` wrote")
        found |= dict.fromkeys(runs)
    return list(found)


def curves(folders: Sequence[Path], settings: CurveSettings) -> list[Curve]:
    """Return one curve for each combination of environment, algorithm and settings among the run directories, in their order.

    Raises:
        SettingsError: there is no folder, a folder contains no run, or a run has not logged the metric.
    """
    if not folders:
        raise SettingsError("give at least one run directory")
    metric = metric_of(folders, settings)
    found = []
    for (env, label), runs in _experiments(folders).items():
        logged = [_logged(run, metric, settings) for run in runs]
        x, rows = _together(logged)
        value = STATISTICS[settings.statistic](rows.T)
        low, high = _band(rows, value, settings)
        found.append(Curve(env=env, label=label, seeds=len(runs), x=x, value=value, low=low, high=high))
    return found


def metric_of(folders: Sequence[Path], settings: CurveSettings) -> str:
    """Return the name of the metric that is drawn."""
    if settings.metric is not None:
        return settings.metric
    evaluated = all(len(read_metric(folder / "metrics.csv", EVALUATION)[0]) > 0 for folder in folders)
    return EVALUATION if evaluated else TRAINING


def require_own_table(path: Path, header: Sequence[str]) -> None:
    """Check that writing the numbers of a picture would not replace another file, such as the metrics of a run.

    Raises:
        SettingsError: `path` exists, and its first line is not `header`.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        first = stream.readline(MAX_HEADER).strip()
    if first != ",".join(header):
        raise SettingsError(
            f"the numbers of the picture would replace {path}, which holds something else; choose another --out"
        )


def write_table(found: Sequence[Curve], path: Path) -> None:
    """Write every point of the curves as CSV."""
    # any characters: they come from files
    rows = (
        (
            one_line(curve.env),
            one_line(curve.label),
            curve.seeds,
            *map(float, point),
        )
        for curve in found
        for point in zip(curve.x, curve.value, curve.low, curve.high, strict=True)
    )
    write_csv(path, HEADER, rows)


def write_csv(path: Path, header: Sequence[object], rows: Iterable[Iterable[object]]) -> None:
    """Write a table in CSV atomically; raises like `write_whole`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


# --- runs grouped into experiments -----------------------------------------------------------------------------------


def _experiments(folders: Sequence[Path]) -> dict[tuple[str, str], list[Path]]:
    """Return (environment, label) -> runs that differ only in the seed."""
    together: dict[tuple[str, str, frozenset[tuple[str, object]]], list[Path]] = {}
    for folder in folders:
        env, algorithm, own = _described(folder)
        together.setdefault((env, algorithm, frozenset(own.items())), []).append(folder)
    found: dict[tuple[str, str], list[Path]] = {}
    for (env, algorithm, settings), runs in together.items():
        others = [s for e, a, s in together if (e, a) == (env, algorithm)]
        label = ", ".join([algorithm, *_differences(settings, others)])
        while (env, label) in found:  # the settings that differ are not among those shown
            label += "'"
        found[env, label] = runs
    return found


def _described(folder: Path) -> tuple[str, str, Mapping[str, object]]:
    """Return (environment, algorithm, settings that distinguish experiments) of a run."""
    directory = RunDirectory(folder)
    if not directory.record.exists():
        raise SettingsError(f"{folder} holds no run: it has no run.json; give directories that `rlsdk run --out` wrote")
    record = directory.read_record()
    settings = settings_as_text(directory.config) if directory.config.exists() else {}
    return record.place, record.algorithm, {**settings, "steps": f"{record.steps:,}", "n_envs": str(record.n_envs)}


def settings_as_text(path: Path) -> dict[str, object]:
    """Return the settings of a run as text, by dotted name."""
    pending = list(load_settings(path).items())
    found: dict[str, object] = {}
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}", item) for key, item in value.items()]
        elif name not in NO_DIFFERENCE:
            found[name] = str(value)
    return found


def _differences(settings: frozenset[tuple[str, object]], others: Sequence[frozenset[tuple[str, object]]]) -> list[str]:
    """Return the settings that not all experiments share, as text; at most `SHOWN_DIFFERENCES`, then their number."""
    common = frozenset.intersection(*others)
    found = [f"{name} = {one_line(value, 30)}" for name, value in sorted(settings - common)]
    more = len(found) - SHOWN_DIFFERENCES
    return [*found[:SHOWN_DIFFERENCES], f"and {more} more"] if more > 0 else found


# --- numbers ---------------------------------------------------------------------------------------------------------


def _logged(folder: Path, metric: str, settings: CurveSettings) -> tuple[Array, Array]:
    """Return (x, values) of one run, smoothed."""
    column, factor, _ = AXES[settings.x]
    places, values = read_metric(folder / "metrics.csv", metric, column)
    if not places:
        raise SettingsError(
            f"{folder} has logged no {metric!r} over {settings.x}; see its metrics.csv for what there is"
        )
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - settings.smooth)
    return np.asarray(places) * factor, (sums[ends] - sums[starts]) / (ends - starts)


def _together(logged: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return (x [P], values [seeds, P]) over the range that all runs cover. Values are interpolated where needed."""
    first = logged[0][0]
    if all(np.array_equal(places, first) for places, _ in logged):
        return first, np.stack([values for _, values in logged])
    start, end = max(places[0] for places, _ in logged), min(places[-1] for places, _ in logged)
    grid = np.linspace(start, max(start, end), GRID)
    return grid, np.stack([np.interp(grid, places, values) for places, values in logged])


def _band(rows: Array, value: Array, settings: CurveSettings) -> tuple[Array, Array]:
    """Return the bounds (low, high) [P] of the band for values [seeds, P]."""
    if len(rows) == 1 or settings.band == "none":
        return value, value
    if settings.band == "range":
        return rows.min(0), rows.max(0)
    if settings.band == "deviation":
        spread = rows.std(0, ddof=1)
        return value - spread, value + spread
    statistic, rng = STATISTICS[settings.statistic], np.random.default_rng(0)
    drawn = rng.integers(len(rows), size=(RESAMPLES, len(rows)))
    bounds = [np.percentile(statistic(point[drawn]), (2.5, 97.5)) for point in rows.T]
    low, high = np.transpose(bounds)
    return low, high


def write_beside_edits(path: Path, text: str) -> Path:
    """Write the result of `sealed` to `path`, or, with a warning, to the first `NAME_2`, `NAME_3`, .. if a user edited it.

    Return the path; raises like `write_whole`.
    """
    place, number = path, 1
    while place.exists() and is_edited(place.read_bytes().decode(errors="replace")):
        number += 1
        place = path.with_name(f"{path.stem}_{number}{path.suffix}")
    if place != path:
        warnings.warn(f"{path} was edited and stays as it is; what is new is in {place}", stacklevel=3)
    write_whole(place, text.encode())
    return place
