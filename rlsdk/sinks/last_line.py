"""The last line of a file of metrics, which further metrics of its step are added to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class LastLine:
    """Keeps one line per step: metrics of the same step are merged, unless a name would get a second value.

    Lines that another object wrote are left alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step, self.values = -1, dict[str, object]()
        self.start = self.end = -1
        """Where the line begins and ends, in bytes."""

    def merge(self, step: int, values: Mapping[str, object]) -> dict[str, object]:
        """The values of the line to `write` next. The last line is cut off if they include it."""
        whole = self.path.exists() and self.path.stat().st_size == self.end
        if step == self.step and whole and not self.values.keys() & values.keys():
            with self.path.open("r+b") as stream:
                stream.truncate(self.start)
            values = {**self.values, **values}
        self.step, self.values = step, dict(values)
        return self.values

    def write(self, line: str) -> None:
        """Append a line, its end included."""
        data = line.encode()
        with self.path.open("ab") as stream:
            stream.write(data)
        self.end = self.path.stat().st_size
        self.start = self.end - len(data)
