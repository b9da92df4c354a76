"""Metrics as a CSV file, one row per log."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path


class CsvSink:
    """Appends rows to `path`; a metric that appears later gets a column of its own, empty in the rows before it."""

    format = "csv"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as stream:
                self.columns = next(csv.reader(stream), [])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        row = {"step": step, **values}
        if new := [name for name in row if name not in self.columns]:
            self._add(new)
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.DictWriter(stream, self.columns).writerow(row)

    def _add(self, new: list[str]) -> None:
        """Rewrite the file with more columns, beside it first so that nothing written is lost."""
        rows: list[dict[str, str]] = []
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as stream:
                rows = list(csv.DictReader(stream))
        self.columns += new
        temporary = self.path.with_suffix(".csv.part")
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, self.columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self.path)

    def close(self) -> None:
        """Every row is on disk already."""
