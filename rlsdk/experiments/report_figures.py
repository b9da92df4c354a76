"""Pictures of a bench as PNG bytes (extra `plot`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rlsdk.evaluation.aggregate import Scores, profile
from rlsdk.experiments.plotting import literal, new_figure, plot_runs, save_figure

PROFILE_POINTS = 101


def learning_curves(folders: Sequence[Path]) -> bytes:
    """Evaluations of runs on one environment, a band per algorithm and settings."""
    with TemporaryDirectory() as place:
        path = Path(place) / "curves.png"
        plot_runs(folders, path)
        return path.read_bytes()


def profiles(scores: Mapping[str, Scores]) -> bytes:
    """The share of runs above each normalised score, a band per algorithm; tasks weighted alike."""
    every = np.concatenate([task for tasks in scores.values() for task in tasks])
    thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), PROFILE_POINTS)
    figure = new_figure()
    (axes,) = figure.axes
    for name, tasks in scores.items():
        shares, low, high = profile(tasks, thresholds)
        (line,) = axes.plot(thresholds, shares, label=literal(f"{name}, {len(tasks)} environments"))
        axes.fill_between(thresholds, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(xlabel="normalised return", ylabel="share of runs above it", ylim=(-0.02, 1.02))
    axes.legend(loc="best")
    stream = io.BytesIO()
    save_figure(figure, stream)
    return stream.getvalue()
