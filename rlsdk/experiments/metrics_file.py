"""Columns of a run's metrics.csv."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from rlsdk.errors import SettingsError
from rlsdk.experiments.stored_tables import read_text

MAX_METRICS = 1 << 32
"""Bytes."""


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
