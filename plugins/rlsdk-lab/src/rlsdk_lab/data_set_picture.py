"""The picture of a data set: histograms of the returns and lengths of its episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlsdk.runtime import counted
from rlsdk_lab.curves import require_own_table, write_csv
from rlsdk_lab.plotting import literal, new_figure, save_figure

BINS = 30
HEADER = ("episode", "return", "length")
"""Header of the CSV file with the numbers."""


def plot_episodes(returns: NDArray[np.float64], lengths: NDArray[np.int64], output: Path, title: str) -> str:
    """Draw histograms of the returns [E] and lengths [E] of E episodes. Return the text that describes the picture.

    Args:
        returns: the return of each episode.
        lengths: the length of each episode in steps.
        output: the picture to write; its suffix chooses the format. The numbers are written to a `.csv` file next to it.
        title: the title of the picture.

    Raises:
        SettingsError: the format is unknown, matplotlib is not installed, or the `.csv` file would replace another file.
    """
    require_own_table(output.with_suffix(".csv"), HEADER)
    figure = new_figure(1, 2)
    for axes, values, label in zip(figure.axes, (returns, lengths), ("return", "length in steps"), strict=True):
        axes.hist(np.asarray(values, np.float64), bins=min(BINS, max(1, len(values) // 2)))
        axes.set(xlabel=f"{label} of an episode", ylabel="episodes")
    figure.suptitle(literal(title))
    text = (
        f"Histograms of {counted(len(returns), 'episode')}: returns from {returns.min():.2f} to {returns.max():.2f}, median"
        f" {np.median(returns):.2f}; lengths from {lengths.min()} to {lengths.max()} steps, median {np.median(lengths):g}."
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, output, f"{title}. {text}")
    write_csv(output.with_suffix(".csv"), HEADER, enumerate_rows(returns, lengths))
    return text


def enumerate_rows(returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> list[tuple[int, float, int]]:
    """Return (number, return, length) of each episode."""
    return [(number, *pair) for number, pair in enumerate(zip(returns.tolist(), lengths.tolist(), strict=True))]
