"""The last line of a metrics file: later metrics of the same step are added to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlsdk.runtime.whole_files import append_whole


class LastLine:
    """Appends lines to a file and merges metrics of the same step into one line.

    If a name would get a second value in that line, a new line is started. Lines that another object wrote stay unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step, self.values = -1, dict[str, object]()
        self.start = self.end = -1
        """The offsets in the file, in bytes, at which the last line begins and ends; -1 before the first line."""

    def merge(self, step: int, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values of the next line, which the caller passes to `write` as text.

        If the last line can be merged (see the class), its values are included, and it is removed from the file.
        """
        whole = self.path.exists() and self.path.stat().st_size == self.end
        if step == self.step and whole and not self.values.keys() & values.keys():
            with self.path.open("r+b") as stream:
                stream.truncate(self.start)
            values = {**self.values, **values}
        self.step, self.values = step, dict(values)
        return self.values

    def write(self, line: str) -> None:
        """Append `line`, which includes its line break, to the file.

        Raises:
            OSError: it cannot be written, for example because the disk is full. No part of it remains in the file.
        """
        data = line.encode()
        append_whole(self.path, data)
        self.end = self.path.stat().st_size
        self.start = self.end - len(data)
