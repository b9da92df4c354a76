"""Pictures of a bench, each with a text that describes it and its numbers as CSV next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import one_line
from rlsdk.runs import folder_name, read_metric
from rlsdk_lab.curves import EVALUATION, TRAINING, CurveSettings, write_csv
from rlsdk_lab.plotting import in_words, literal, new_figure, plot_runs, save_figure
from rlsdk_lab.statistics import Scores, profile

PROFILE_POINTS = 101
HALF = 0.5
"""The normalized return that the text about performance profiles uses."""


@attrs.frozen(kw_only=True)
class Picture:
    """A picture file, its title and a text that describes it."""

    title: str
    text: str
    """Description for readers who do not see the picture."""
    path: Path

    @property
    def table(self) -> Path:
        """The CSV file with its numbers."""
        return self.path.with_suffix(".csv")


def learning_curves(env: str, folders: Sequence[Path], place: Path) -> Picture:
    """Draw the evaluations of runs on one environment, with a band per algorithm and settings.

    If a run has no evaluations, draw training returns instead.
    """
    path = place / f"curves-{folder_name(env)}.png"
    evaluated = all(read_metric(folder / "metrics.csv", EVALUATION)[0] for folder in folders)
    metric = EVALUATION if evaluated else TRAINING
    texts = plot_runs(folders, path, CurveSettings(metric=metric))
    title = f"Learning curves on {env}: {in_words(metric)}"
    return Picture(title=title, text=f"{title}. {'; '.join(texts)}.", path=path)


def profiles(scores: Mapping[str, Scores], where: str, place: Path) -> Picture:
    """Draw performance profiles: the share of runs above each normalized score, a band per algorithm. Tasks have equal
    weights."""
    every = np.concatenate([task for tasks in scores.values() for task in tasks])
    thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), PROFILE_POINTS)
    figure, texts, bands = new_figure(), list[str](), dict[str, tuple[NDArray[np.float64], ...]]()
    (axes,) = figure.axes
    for name, tasks in scores.items():
        shares, low, high = bands[name] = profile(tasks, thresholds)
        (line,) = axes.plot(thresholds, shares, label=literal(f"{name}, {len(tasks)} environments"))
        axes.fill_between(thresholds, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        texts.append(f"{name}: {float(np.interp(HALF, thresholds, shares)):.0%} of runs above {HALF}")
    axes.set(xlabel="normalized return", ylabel="share of runs above it", ylim=(-0.02, 1.02))
    axes.legend(loc="best")
    title = f"Performance profiles, {where}"
    picture = Picture(
        title=title,
        text=f"{title}: share of runs above each normalized return. {'; '.join(texts)}.",
        path=place / "profiles.png",
    )
    place.mkdir(parents=True, exist_ok=True)
    save_figure(figure, picture.path, picture.text)
    _write_bands(bands, thresholds, picture.table)
    return picture


def _write_bands(
    bands: Mapping[str, tuple[NDArray[np.float64], ...]], thresholds: NDArray[np.float64], path: Path
) -> None:
    rows = (
        (one_line(name), *map(float, point)) for name in bands for point in zip(thresholds, *bands[name], strict=True)
    )
    write_csv(path, ("algorithm", "normalized_return", "share_above", "low", "high"), rows)
