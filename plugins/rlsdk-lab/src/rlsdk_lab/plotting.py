"""Learning curves as pictures. Each file contains a text that describes it. The numbers are written as CSV
next to it."""

from __future__ import annotations

import contextlib
import io
import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import attrs

from rlsdk.errors import ArtifactError, SettingsError, one_line, shown
from rlsdk.runs import RunDirectory, read_metric
from rlsdk.runtime import pip_install, write_whole
from rlsdk_lab.curves import (
    AXES,
    EVALUATION,
    HEADER,
    TRAINING,
    Curve,
    CurveSettings,
    curves,
    metric_of,
    require_own_table,
    write_table,
)

WORDS = {
    EVALUATION: "return of evaluations",
    TRAINING: "return of training episodes",
    "eval/mean_ep_length": "steps of evaluation episodes",
    "eval/success_rate": "success rate of evaluations",
    "rollout/ep_len_mean": "steps of training episodes",
    "rollout/success_rate": "success rate of training episodes",
    "time/fps": "environment steps per second",
}
BANDS = {
    "interval": "95 % bootstrap interval",
    "range": "range",
    "deviation": "one standard deviation",
}
STATISTICS = {"mean": "mean", "iqm": "interquartile mean", "median": "median"}
DESCRIPTION = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}
"""Suffix of a picture -> the metadata entry for the text that describes it."""
LOGARITHMIC = ("none", "x", "y", "xy")
COLUMNS = 3
AXIS_SIZE = (6.4, 4.0)
"""Width and height in inches of the axes of one environment."""
TITLE_WIDTH = 40
"""Number of characters that fit above the axes of one environment."""


def _sensible_size(_: object, attribute: attrs.Attribute[Any], value: tuple[float, float] | None) -> None:
    if value is not None and not all(math.isfinite(side) and 1.0 <= side <= 100.0 for side in value):
        raise SettingsError(f"size = {shown(value)} must be a width and a height from 1 to 100 inches")


def _logarithmic(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in LOGARITHMIC:
        raise SettingsError(f"log = {shown(value)} must be one of {', '.join(LOGARITHMIC)}")


@attrs.frozen(kw_only=True)
class PictureSettings:
    """Title, size and axes of a picture of curves."""

    title: str = ""
    size: tuple[float, float] | None = attrs.field(default=None, validator=_sensible_size)
    """Width and height in inches. None: the size grows with the number of environments."""
    log: str = attrs.field(default="none", validator=_logarithmic)
    """Logarithmic axes: none, x, y or xy."""


def plot_run(folder: Path, output: Path, title: str = "") -> bool:
    """Draw training and evaluation returns of a run directory.

    Return False if no curve has two points, so that matplotlib, a slow import, draws no empty axes, or if it is not installed.
    """
    if not (metrics := folder / "metrics.csv").exists():
        return False
    trained, (steps, means) = read_metric(metrics, TRAINING), read_metric(metrics, EVALUATION)
    if max(len(trained[0]), len(steps)) < 2:
        return False
    try:
        figure = new_figure()
    except SettingsError:
        return False
    (axes,) = figure.axes
    axes.plot(*trained, label="training, mean of recent episodes")
    deviations = dict(zip(*read_metric(metrics, "eval/std_reward"), strict=True))
    axes.errorbar(
        steps,
        means,
        yerr=[abs(deviations.get(step, 0.0)) for step in steps],
        fmt="o-",
        capsize=3,
        label="evaluation, mean and deviation over episodes",
    )
    axes.set(xlabel=AXES["steps"][2], ylabel="return of an episode", title=environment_title(title))
    axes.legend(loc="lower right")
    save_figure(figure, output, f"Returns of training and evaluation episodes over steps. {title}")
    return True


def plot_ended(folder: Path) -> None:
    """Draw the curves of a run, or of the seeds of a sweep, that has just ended. Nothing is drawn without matplotlib or curves.

    Raises:
        SettingsError: the numbers of the run cannot be drawn.
    """
    directory = RunDirectory(folder)
    if directory.record.is_file():
        record = directory.read_record()
        plot_run(folder, folder / "learning_curve.png", f"{record.algorithm} on {record.place}")
        return
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    finished = [folder / f"seed-{seed}" for seed, result in summary["seeds"].items() if result["error"] is None]
    with contextlib.suppress(SettingsError):  # no matplotlib, or nothing to draw
        plot_runs(finished, folder / "learning_curves.png")


def plot_runs(
    places: Sequence[Path],
    output: Path,
    settings: CurveSettings | None = None,
    picture: PictureSettings | None = None,
) -> list[str]:
    """Draw one metric of many runs: one plot per environment, one line per algorithm and settings, a band over its seeds.

    Args:
        places: run directories.
        output: the picture to write; its suffix chooses the format. The numbers are written to a `.csv` file next to it.
        settings: the metric to draw, and how it is computed.
        picture: title, size and axes of the picture.

    Returns:
        One line of text per curve: what it shows and its last value.

    Raises:
        SettingsError: a folder contains no run, a run has no such metric, the format is unknown, matplotlib is not installed,
            or the `.csv` file would replace another file.
    """
    settings, picture = settings or CurveSettings(), picture or PictureSettings()
    found = curves(places, settings)
    metric = metric_of(places, settings)
    require_own_table(output.with_suffix(".csv"), HEADER)
    figure = _figure_of(found, metric, settings, picture)
    texts = [f"{_name(curve)}, {curve.env}: {in_words(metric)} ends at {_ends(curve)}" for curve in found]
    save_figure(figure, output, f"{_caption(found, settings)} of the {in_words(metric)}. {'; '.join(texts)}.")
    write_table(found, output.with_suffix(".csv"))
    return texts


def in_words(metric: str) -> str:
    """Return the words for a metric in labels."""
    return WORDS.get(metric) or metric.rpartition("/")[2].replace("_", " ")


def new_figure(rows: int = 1, columns: int = 1, size: tuple[float, float] = (8.0, 4.5)) -> Any:
    """Return a figure without a window. Its `axes` are a list, row after row.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError(f"pictures need matplotlib: {pip_install('rlsdk-lab')}") from None
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.subplots(rows, columns)
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    return figure


def literal(text: str) -> str:
    """Return `text` for a title or label: without control characters, and with escaped dollar signs, which begin formulas."""
    return one_line(text).replace("$", r"\$")


def save_figure(figure: Any, output: Path | IO[bytes], description: str = "") -> None:
    """Write a picture in the format of its suffix, or as PNG to a stream.

    Args:
        figure: a figure from `new_figure`.
        output: the file or stream to write.
        description: text for readers who do not see the picture; PNG, SVG and PDF files contain it.

    Raises:
        SettingsError: the format is unknown, the numbers cannot be drawn, or the file cannot be written.
    """
    suffix = (output.suffix if isinstance(output, Path) else "") or ".png"
    entry = DESCRIPTION.get(suffix.lower())
    metadata = {entry: one_line(description, 2000)} if entry and description else None
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, dpi=120, metadata=metadata, format=suffix[1:])
    except (ValueError, OverflowError, MemoryError) as error:
        raise SettingsError(f"the picture {output} cannot be drawn: {error}") from None
    if not isinstance(output, Path):
        output.write(drawn.getvalue())
        return
    try:
        write_whole(output if output.suffix else output.with_name(f"{output.name}{suffix}"), drawn.getvalue())
    except ArtifactError as error:
        raise SettingsError(f"cannot write the picture{str(error).removeprefix('cannot write')}") from None


def environment_title(env: str) -> str:
    """Return an environment id as a title. Arguments and wrappers begin new lines, and long lines are wrapped."""
    parts = env.replace("?", "\n?").replace("&", "\n&").splitlines()
    return "\n".join(literal(line) for part in parts for line in textwrap.wrap(part, TITLE_WIDTH))


def _figure_of(found: Sequence[Curve], metric: str, settings: CurveSettings, picture: PictureSettings) -> Any:
    """Return a figure with one plot per environment."""
    from matplotlib.ticker import EngFormatter

    envs = list(dict.fromkeys(curve.env for curve in found))
    columns = min(COLUMNS, len(envs))
    rows = math.ceil(len(envs) / columns)
    figure = new_figure(rows, columns, picture.size or (AXIS_SIZE[0] * columns, AXIS_SIZE[1] * rows + 0.5))
    colors = {label: f"C{k % 10}" for k, label in enumerate(dict.fromkeys(curve.label for curve in found))}
    for env, axes in zip(envs, figure.axes, strict=False):
        for curve in found:
            if curve.env != env:
                continue
            color = colors[curve.label]
            alone = "o" if len(curve.x) == 1 else None  # a line of one point is not visible
            axes.plot(curve.x, curve.value, label=literal(_name(curve)), color=color, marker=alone)
            axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2, color=color, linewidth=0)
        axes.set(xlabel=AXES[settings.x][2], ylabel=literal(in_words(metric)), title=environment_title(env))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, 1M
        if "x" in picture.log:
            axes.set_xscale("log")
        if "y" in picture.log:
            axes.set_yscale("symlog")  # returns may be negative
        axes.legend(loc="best")
    for empty in figure.axes[len(envs) :]:
        empty.set_visible(False)
    figure.suptitle(literal(picture.title or _caption(found, settings)))
    return figure


def _name(curve: Curve) -> str:
    return f"{curve.label}, {curve.seeds} seeds" if curve.seeds > 1 else curve.label


def _ends(curve: Curve) -> str:
    last = f"{curve.value[-1]:.2f}"
    return last if curve.low[-1] == curve.high[-1] else f"{last} [{curve.low[-1]:.2f} .. {curve.high[-1]:.2f}]"


def _caption(found: Sequence[Curve], settings: CurveSettings) -> str:
    """Return the statistic, the band and the smoothing of the curves in words."""
    several = any(curve.seeds > 1 for curve in found)
    notes = ["Learning curves"] if not several else [f"{STATISTICS[settings.statistic].capitalize()} over seeds"]
    if several and settings.band in BANDS:
        notes.append(BANDS[settings.band])
    if settings.smooth > 1:
        notes.append(f"running mean over {settings.smooth} points")
    return ", ".join(notes)
