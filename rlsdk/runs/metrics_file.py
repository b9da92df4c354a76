"""Read columns of the metrics.csv of a run."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from rlsdk.errors import SettingsError, shown
from rlsdk.experiments.stored_tables import read_text

MAX_METRICS = 1 << 32
"""Largest file in bytes."""


def read_metric(path: Path, name: str, x: str = "step") -> tuple[list[float], list[float]]:
    """Return (x, values) of one column of a run's metrics.csv. Rows without the metric are left out.

    Raises:
        SettingsError: the file cannot be read, or the column holds texts.
    """
    try:
        table = csv.DictReader(read_text(path, MAX_METRICS).splitlines())
        rows = [row for row in table if row.get(name) and row.get(x)]
        if rows and not any(_is_number(row[name]) for row in rows):
            raise SettingsError(
                f"the metric {shown(name, 100)} of {path} has no numbers, for example {shown(rows[0][name], 50)}; choose"
                " another column of that file"
            )
        places, values = [float(row[x]) for row in rows], [float(row[name]) for row in rows]
    except (csv.Error, ValueError, TypeError) as error:
        raise error if isinstance(error, SettingsError) else SettingsError(f"{path} is damaged: {error}") from None
    if not all(map(math.isfinite, places)):
        raise SettingsError(f"{path} is damaged: its column {x} holds a number that is not finite")
    return places, values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
