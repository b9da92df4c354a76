"""A sink that writes metrics to a CSV file, one row per step."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from rlsdk.errors import SettingsError, shown
from rlsdk.runtime.whole_files import write_whole
from rlsdk.sinks.last_line import LastLine
from rlsdk.sinks.place import made
from rlsdk.sinks.sink import Sink
from rlsdk.sinks.values import in_words

MOST_TEXT = 100_000
"""Characters of a cell. Python's csv module refuses to read cells with more than 131,072."""


class CsvSink(Sink):
    """Appends rows to the file `path`. A metric that appears later gets a new column, which is empty in earlier rows.

    Metrics that are logged later for the same step, such as those of an evaluation, go into the row of that step.
    """

    format = "csv"

    def __init__(self, path: str | Path) -> None:
        """Makes the folder if need be; raises SettingsError where that is not possible, or `path` is another table."""
        self.path = made(Path(path).parent) / Path(path).name
        self.columns: list[str] = []
        self._last = LastLine(self.path)
        if self.path.exists():
            self.columns = _columns(self.path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._write(step, values)

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Write the texts, Nones (empty cells) and arrays of at most 1,000 entries (as JSON), and return their names."""
        texts = {name: text for name, value in values.items() if (text := in_words(value)) is not None}
        short = {name: text for name, text in texts.items() if len(text) <= MOST_TEXT}
        if short:
            self._write(step, short)
        return list(short)

    def _write(self, step: int, values: Mapping[str, object]) -> None:
        row = {"step": step, **self._last.merge(step, values)}
        if new := [name for name in row if name not in self.columns]:
            self._add(new)
        line = io.StringIO()
        csv.DictWriter(line, self.columns).writerow(row)
        self._last.write(line.getvalue())

    def _add(self, new: list[str]) -> None:
        """Replace the file by one that also has the columns `new`. The replacement is atomic."""
        rows: list[dict[str, str]] = []
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as stream:
                rows = list(csv.DictReader(stream))
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, [*self.columns, *new], restval="")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.path, table.getvalue().encode())
        self.columns += new


def _columns(path: Path) -> list[str]:
    """Return the column names from the first line of the file, after checking that every row fits them.

    Raises:
        SettingsError: the file cannot be read, two columns have the same name, or a row has too many cells.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
    except (OSError, ValueError, csv.Error) as error:
        raise SettingsError(f"{path} is damaged: {error}; move it away to log into a new one") from None
    columns = rows[0] if rows else []
    if columns and columns[0] != "step":
        raise SettingsError(
            f"{path} holds another table, which begins with {shown(columns[0], 50)}, not with 'step'; choose another file"
        )
    if len(set(columns)) < len(columns) or any(len(row) > len(columns) for row in rows):
        raise SettingsError(
            f"{path} is damaged: its rows do not fit its first line; move it away to log into a new one"
        )
    return columns
