"""Learning curves as pictures (extra `plot`)."""

from __future__ import annotations

import csv
from pathlib import Path

from rlsdk.errors import SettingsError


def read_metric(path: Path, name: str) -> tuple[list[int], list[float]]:
    """(steps, values) of one column of a run's metrics.csv; rows without the metric are left out.

    Raises:
        SettingsError: there is no such file or column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.DictReader(stream) if row.get(name)]
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    return [int(float(row["step"])) for row in rows], [float(row[name]) for row in rows]


def plot_run(folder: Path, output: Path, title: str = "") -> bool:
    """Draw training and evaluation returns of a run directory; False when matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    metrics = folder / "metrics.csv"
    if metrics.exists():
        axes.plot(*read_metric(metrics, "rollout/ep_rew_mean"), label="training, mean of recent episodes")
        steps, means = read_metric(metrics, "eval/mean_reward")
        _, deviations = read_metric(metrics, "eval/std_reward")
        axes.errorbar(
            steps, means, yerr=deviations, fmt="o-", capsize=3, label="evaluation, mean and deviation over episodes"
        )
    axes.set(xlabel="environment steps", ylabel="episode return", title=title)
    axes.grid(alpha=0.3)
    if metrics.exists():
        axes.legend(loc="lower right")
    figure.savefig(output, dpi=120)
    return True
